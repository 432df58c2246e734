"""A Source in, its Analysis out: reference, profile and doubts, worked out by a child process."""

import json
import os
import re
import sys
import tempfile

from collections.abc import Iterator
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import liger_dev

from liger_dev import errors
from liger_dev.bench.peers import has_peer
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.errors import LimitReached
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.records import digest
from liger_dev.render import format_python
from liger_dev.sandbox import Completed
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child
from liger_dev.sources import closest_in_catalog

CHILD_LIMITS = Limits(seconds=300)


@dataclass(frozen=True)
class Analysis:
    """What the analyzer hands to the review: the reference, its profile, and what it was unsure about."""

    reference: Reference
    profile: KernelProfile
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        profile = self.profile.model_dump(mode="json")
        return {"reference": self.reference.to_json(), "profile": profile, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Analysis":
        profile = KernelProfile.model_validate(data["profile"])
        return cls(Reference.from_json(data["reference"]), profile, tuple(data["notes"]))


@dataclass(frozen=True)
class CompiledReply:
    """The compiler's answer: a profile's fields, and the values that the op template needs."""

    profile: dict[str, Any]
    op: dict[str, Any]


def analyze(name: str, source: Source, *, root: Path | None = None, limits: Limits = CHILD_LIMITS) -> Analysis:
    """The reference and the profile of a source; `root` is the workspace whose kernels are compared with it.

    Raises:
        BadInput: the source can't be loaded, or is no differentiable function of tensors.
        Unsupported: the compiler can't express one of its operations.
        LimitReached: the child ran out of time or memory.
    """
    reply = _ask({"do": "analyze", "name": name, "source": asdict(source)}, limits, _import_path(source))
    reference = Reference.from_json(reply["reference"])
    if reply["printed"]:
        path = f"{name}.py"
        reference = replace(reference, text=format_python({path: reference.text})[path])
    facts = {
        **reply["profile"],
        "closest_existing_kernel": _closest(name, source, reply["profile"], root),
        "benchmark_providers": _providers(name, source, reply["profile"]),
        "assumptions": list(reference.assumptions),
        "provenance": _provenance(reference, source),
    }
    return Analysis(reference, KernelProfile.model_validate(facts), tuple(reply["notes"]))


def compile_in_child(reference: Reference, options: dict[str, Any], *, limits: Limits = CHILD_LIMITS) -> CompiledReply:
    """The compiler's answer for a reference. Raises what `compile_op` raises, and LimitReached."""
    reply = _ask({"do": "compile", "reference": reference.to_json(), "options": options}, limits, [])
    return CompiledReply({"closest_existing_kernel": "none", **reply["profile"]}, reply["op"])


def load_in_child(name: str, source: Source, *, limits: Limits = CHILD_LIMITS) -> Reference:
    """The reference of a source alone, without a profile."""
    reply = _ask({"do": "load", "name": name, "source": asdict(source)}, limits, _import_path(source))
    return Reference.from_json(reply["reference"])


def facts_in_child(
    reference: Reference, formulas: dict[str, str], *, limits: Limits = CHILD_LIMITS
) -> list[dict[str, Any]]:
    """Name, shape and dtype of each output of a reference. Raises BadInput unless the gradients' formulas hold."""
    reply = _ask({"do": "facts", "reference": reference.to_json(), "formulas": formulas}, limits, [])
    return list(reply["outputs"])


def compare_in_child(first: Reference, second: Reference, *, limits: Limits = CHILD_LIMITS) -> None:
    """Raises BadInput unless two references compute the same from the same arguments, in float64."""
    _ask({"do": "compare", "first": first.to_json(), "second": second.to_json()}, limits, [])


def cover_in_child(name: str, source: Source, *, run: bool, limits: Limits) -> dict[str, Any]:
    """`tier`, and `disagreement`: how the emitted op differs from the reference, "" if nowhere, None unless `run`.

    Raises what `analyze` raises.
    """
    return _ask({"do": "cover", "name": name, "source": asdict(source), "run": run}, limits, _import_path(source))


def _ask(request: dict[str, Any], limits: Limits, import_path: list[Path]) -> dict[str, Any]:
    """One request to a child of its own. Raises again what the child raised, and LimitReached or LigerDevError."""
    package = Path(liger_dev.__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory(prefix="liger-dev-") as folder:
        scratch = Path(folder).resolve()
        asked, answered = scratch / "request.json", scratch / "reply.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        argv = [sys.executable, "-m", "liger_dev.child", str(asked), str(answered)]
        env = {"PYTHONPATH": os.pathsep.join(map(str, [package, *import_path]))}
        done = run_child(argv, scratch=scratch, limits=limits, env=env)
        if done.returncode or not answered.is_file():
            raise _ended(done, limits)
        reply: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    if "error" in reply:
        raise _raised(**reply["error"])
    return reply


def _raised(kind: str, what: str, where: str, todo: str) -> LigerDevError:
    """The child's error, as the class that it had there."""
    known = getattr(errors, kind, None)
    assert isinstance(known, type) and issubclass(known, LigerDevError), f"{kind} is no error of the tool"
    return known(what, where, todo)


def _ended(done: Completed, limits: Limits) -> LigerDevError:
    """Why a child left no answer."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"exit status {done.returncode}"
    if done.timed_out:
        return LimitReached(
            f"the analysis did not end within {limits.seconds:g} seconds", "", "try a smaller reference; does it loop?"
        )
    if done.returncode in (-9, 137) or "MemoryError" in last or "not enough memory" in last:
        return LimitReached(
            "the analysis was killed: out of memory", last, "build it at smaller sizes, with --init or --shape"
        )
    if done.returncode < 0 or done.returncode > 128:
        number = -done.returncode if done.returncode < 0 else done.returncode - 128
        return BadInput(f"the analysis crashed with signal {number}", last, "run the source by itself in Python")
    return LigerDevError(
        "the analysis failed inside liger-dev", last, "please report it with the source that it was given"
    )


def _import_path(source: Source) -> list[Path]:
    """Where the source's own imports are found: the working directory, and the folder of its file."""
    cwd = Path.cwd()
    beside = [(cwd / source.origin).parent] if source.kind == "function" and (cwd / source.origin).is_file() else []
    return [cwd, *beside]


def _closest(name: str, source: Source, facts: dict[str, Any], root: Path | None) -> str:
    """What the catalogue says, else the workspace's kernel of the same tier with most operations in common."""
    catalogued = re.match(r"catalogue: (\w+)", source.origin)
    if catalogued and (told := closest_in_catalog(catalogued[1])):
        return told
    ops = set(facts["precision_sensitive_ops"])
    found = [(len(ops & set(p.precision_sensitive_ops)), p) for p in _profiles(root) if p.tier == facts["tier"]]
    others = [(common, p.operation_name) for common, p in found if p.operation_name != name and common]
    return max(others, key=lambda pair: (pair[0], pair[1]), default=(0, "none"))[1]


def _providers(name: str, source: Source, facts: dict[str, Any]) -> list[str]:
    """liger-kernel's own op is a baseline where the operation is the catalogue's: another of that name may differ."""
    known = source.origin == f"catalogue: {name}" and has_peer(name)
    return [*facts["benchmark_providers"], *(["liger_kernel"] if known else [])]


def _profiles(root: Path | None) -> Iterator[KernelProfile]:
    for path in sorted((root / "profiles").glob("*.yaml")) if root is not None else ():
        yield parse_profile(path.read_text(encoding="utf-8"), str(path))


def _provenance(reference: Reference, source: Source) -> dict[str, str]:
    versions = {package: _version(package) for package in ("torch", "triton")}
    own = {"source": reference.origin, "reference_sha256": digest(reference.text)}
    if source.sha256:
        own["source_sha256"] = source.sha256
    return {**own, "liger_dev": liger_dev.__version__, **versions}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
