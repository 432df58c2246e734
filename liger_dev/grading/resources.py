"""What the compile gate found: takes its JSON, gives one record a kernel, target and variant. Imports no torch."""

import json

from collections.abc import Iterable
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import fields
from typing import Any

from liger_dev.errors import KernelFailed

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")

# Shared memory that one program may use, in bytes. Sources: CUDA C++ programming guide, table "technical
# specifications per compute capability" (163 KiB, 227 KiB); AMD CDNA3 instruction set guide (64 KiB of LDS).
SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 64 * 1024}


@dataclass(frozen=True)
class KernelResources:
    """One kernel as compiled for one target. `error` is the compiler's text, empty if it compiled; `lacks` is a type of
    the kernel that the target's hardware does not have, so that the kernel is for others and was not compiled.

    `phase` is `forward` or `backward`; `variant` names the settings, as `BLOCK_COLS=4096, num_warps=8`. `registers`
    are per thread (VGPRs on AMD), `spill_bytes` per thread, `shared_bytes` per program.
    """

    kernel: str
    phase: str
    target: str
    variant: str
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    seconds: float = 0.0
    error: str = ""
    lacks: str = ""

    def __str__(self) -> str:
        place = f"{self.kernel} for {self.target} ({self.variant})"
        if self.error:
            return f"{place}: {self.error}"
        if self.lacks:
            return f"{place}: not compiled, {self.target} has no {self.lacks}"
        return (
            f"{place}: {self.registers} registers, {self.spill_bytes} bytes spilled, {self.shared_bytes} bytes shared"
        )


def print_gate(resources: Iterable[KernelResources], error: str = "") -> str:
    """The JSON that `read_gate` takes; `error` is why there is nothing to compile."""
    return json.dumps({"error": error, "resources": [asdict(row) for row in resources]}, indent=1)


def read_gate(text: str) -> tuple[KernelResources, ...]:
    """The records in the gate's JSON; `failures` and `warnings` tell what is wrong with them.

    Raises:
        KernelFailed: the candidate could not be imported or called, launched no kernel, or the text is not what the
            gate writes. A child that wrote nothing (`""`) has failed too.
    """
    where = "compile gate"
    try:
        data = json.loads(text)
        error, resources = data["error"], tuple(_record(row) for row in data["resources"])
    except (ValueError, TypeError, KeyError) as problem:
        raise KernelFailed(f"the compile gate gave no result: {problem}", where, "read the child's output") from None
    if error:
        raise KernelFailed(str(error), where, "mend the op file")
    if not resources:
        raise KernelFailed(
            "the op launched no Triton kernel", where, "check that forward reaches a @triton.jit function"
        )
    return resources


def _record(row: Any) -> KernelResources:
    record = KernelResources(**row)
    for field in fields(record):
        value = getattr(record, field.name)
        expected = (float, int) if field.name == "seconds" else (type(field.default),)
        if field.name in ("kernel", "phase", "target", "variant"):
            expected = (str,)
        if not isinstance(value, expected) or isinstance(value, bool):
            raise TypeError(f"{field.name} is {value!r}")
    return record


def failures(resources: Iterable[KernelResources]) -> tuple[str, ...]:
    """One line for each kernel that did not compile, or that could not be launched on its target."""
    return tuple(str(row) for row in resources if row.error)


def warnings(resources: Iterable[KernelResources]) -> tuple[str, ...]:
    """One line for each kernel that spills registers: slow, but right."""
    return tuple(str(row) for row in resources if not row.error and row.spill_bytes)
