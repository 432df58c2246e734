"""Ahead-of-time compilation: takes an op's name and a workspace, writes JSON with registers, spills and shared memory.

Run in a child of its own, since it imports the op: `python -m liger_dev.grading.compile_gate NAME --root DIR --out FILE`.
The op is called on CPU tensors with its launches recorded instead of run; each is then compiled for every target as
the JIT would compile it there. No GPU and no driver is needed.
"""

import argparse
import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from typing import TypeGuard
from typing import TypeVar

import torch

from liger_dev.axes import extent
from liger_dev.axes import named
from liger_dev.grading.resources import SHARED_LIMIT
from liger_dev.grading.resources import TARGETS
from liger_dev.grading.resources import KernelResources
from liger_dev.grading.resources import print_gate
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile

_COLUMNS = 4096
_ROWS = {"B": 2, "T": 8}
_OTHER_ROWS = 4
# Triton's words where a conversion needs an instruction of compute capability 8.9 (PTX ISA, `cvt`, e4m3x2).
_NO_FP8 = re.compile(r"type (fp8e4nv) not supported in this architecture")
_MULTIPLE = re.compile(r"(\w+)\.shape\[(-?\d+)\] must be a multiple of (\d+)")

T = TypeVar("T")


@dataclass(frozen=True)
class Launch:
    """A kernel and what it was launched with."""

    kernel: Any
    phase: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One way to call the op: the sizes of its axes, which inputs are given and which need a gradient."""

    sizes: dict[str, int]
    given: frozenset[str]
    need_grad: frozenset[str]
    targets: tuple[str, ...] = TARGETS


@dataclass(frozen=True)
class Job:
    """One compilation to do: a launch, as the JIT would specialise it on a target."""

    launch: Launch
    target: str
    source: Any
    options: dict[str, Any]
    variant: str


def cases(profile: KernelProfile) -> Iterator[Case]:
    """All inputs at 4096 columns and at the benchmark's largest size, where other axes of columns are as there; on one
    target, fewer inputs and gradients."""
    floats = frozenset(t.name for t in profile.forward_inputs if t.dtype == "float")
    every = frozenset(t.name for t in profile.forward_inputs)
    required = frozenset(t.name for t in profile.forward_inputs if not t.optional)
    sizes = axis_sizes(profile)
    usual = Case(sizes, every, floats)
    yield usual
    variable, largest = profile.benchmark_variable, max(profile.benchmark_x_values_suggestion)
    if sizes.get(variable) == _COLUMNS != largest:
        config = profile.benchmark_fixed_config.items()
        fixed = {axis: size for axis, size in config if sizes.get(axis) == _COLUMNS and isinstance(size, int)}
        yield replace(usual, sizes={**sizes, **fixed, variable: largest})
    one_target = replace(usual, targets=("sm_90",))
    if required != every:
        yield replace(one_target, given=required, need_grad=floats & required)
    if len(floats) > 1:
        for name in sorted(floats):
            yield replace(one_target, need_grad=frozenset({name}))


def axis_sizes(profile: KernelProfile) -> dict[str, int]:
    """4096 for an axis that is the last of any input, few elements for the others."""
    columns = {tensor.shape[-1] for tensor in profile.forward_inputs if len(tensor.shape) > 1}
    columns = columns or {tensor.shape[-1] for tensor in profile.forward_inputs if tensor.shape}
    names = named(profile.forward_inputs)
    return {name: _COLUMNS if name in columns else _ROWS.get(name, _OTHER_ROWS) for name in sorted(names)}


def divisible(profile: KernelProfile, case: Case, refusal: str) -> Case | None:
    """The case with the size that an op refuses as a little larger, where it says which multiples it takes."""
    asked = _MULTIPLE.match(refusal)
    shape = next((t.shape for t in profile.forward_inputs if asked and t.name == asked[1]), None)
    if asked is None or shape is None or shape[int(asked[2])] not in case.sizes:
        return None
    axis, multiple = str(shape[int(asked[2])]), int(asked[3])
    return replace(case, sizes={**case.sizes, axis: -(-case.sizes[axis] // multiple) * multiple})


def make_inputs(profile: KernelProfile, case: Case) -> dict[str, torch.Tensor | None]:
    """CPU tensors by name: bfloat16, zeros for integers; None for an optional input that is not given."""
    inputs: dict[str, torch.Tensor | None] = {}
    for tensor in profile.forward_inputs:
        shape = [extent(axis, case.sizes) for axis in tensor.shape]
        if tensor.name not in case.given:
            inputs[tensor.name] = None
        elif tensor.dtype == "float":
            needs_grad = tensor.name in case.need_grad
            inputs[tensor.name] = torch.randn(shape, dtype=torch.bfloat16).requires_grad_(needs_grad)
        else:
            inputs[tensor.name] = torch.zeros(shape, dtype=torch.bool if tensor.dtype == "bool" else torch.int64)
    return inputs


def call_arguments(function: Any, profile: KernelProfile, inputs: dict[str, torch.Tensor | None]) -> list[Any]:
    """What `function.apply` takes, by the names of its `forward`: tensors, then the module's defaults."""
    scalars = {param.name: param.default for param in profile.module_init_params}
    arguments: list[Any] = []
    for parameter in list(inspect.signature(function.forward).parameters.values())[1:]:
        if parameter.name in inputs:
            arguments.append(inputs[parameter.name])
        elif scalars.get(parameter.name) is not None or parameter.default is inspect.Parameter.empty:
            arguments.append(scalars.get(parameter.name))
        else:
            arguments.append(parameter.default)
    return arguments


def record(
    function: Any, profile: KernelProfile, inputs: dict[str, torch.Tensor | None], launches: list[Launch]
) -> None:
    """Calls forward and backward once; every launch is added to `launches`, none is run."""
    phase = "forward"

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        launches.append(Launch(self, phase, args, kwargs))

    def run_each(self: Any, *args: Any, **kwargs: Any) -> None:
        for config in self.configs:
            self.fn.run(*args, **{**kwargs, **config.all_kwargs()})

    importlib.import_module("triton.runtime.jit").JITFunction.run = run
    importlib.import_module("triton.runtime.autotuner").Autotuner.run = run_each
    outputs = function.apply(*call_arguments(function, profile, inputs))
    outputs = [out for out in (outputs if isinstance(outputs, tuple) else (outputs,)) if _is_differentiable(out)]
    leaves = [leaf for leaf in inputs.values() if _is_differentiable(leaf)]
    phase = "backward"
    if leaves and outputs:
        torch.autograd.grad(outputs, leaves, [torch.empty_like(out) for out in outputs], allow_unused=True)


def _is_differentiable(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _gpu_target(name: str) -> Any:
    gpu_target = importlib.import_module("triton.backends.compiler").GPUTarget
    return gpu_target("cuda", int(name[3:]), 32) if name.startswith("sm_") else gpu_target("hip", name, 64)


def specialise(launch: Launch, target: str) -> Job:
    """Types, constants and divisibility of the launch's arguments, found by the JIT's own rules for that target."""
    jit = importlib.import_module("triton.runtime.jit")
    compiler = importlib.import_module("triton.compiler")
    kernel, backend = launch.kernel, compiler.make_backend(_gpu_target(target))
    bind = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, _ = bind(*launch.args, **launch.kwargs)
    options, signature, constants, attrs = kernel._pack_args(
        backend, {"debug": False, **launch.kwargs}, bound, specialization, None
    )
    source = compiler.ASTSource(kernel, signature, constants, attrs)
    settings = {kernel.arg_names[path[0]]: value for path, value in constants.items() if len(path) == 1}
    settings |= {name: getattr(options, name) for name in ("num_warps", "num_stages")}
    variant = ", ".join(f"{name}={value}" for name, value in settings.items())
    return Job(launch, target, source, vars(options), variant)


def compile_job(job: Job) -> KernelResources:
    """The kernel's resources, or its error."""
    started = time.monotonic()
    row = KernelResources(job.launch.kernel.__name__, job.launch.phase, job.target, job.variant)
    compiler: ModuleType = importlib.import_module("triton.compiler")

    def run() -> tuple[Any, int, int]:
        compiled = compiler.compile(job.source, target=_gpu_target(job.target), options=job.options)
        return compiled, *(_amd if "amdgcn" in compiled.asm else _nvidia)(compiled.asm, job.target)

    made = _attempt(run)
    if isinstance(made, Exception):
        found = _NO_FP8.search(str(made)) if job.target == "sm_80" else None
        if found is not None:
            return replace(row, lacks=found[1], seconds=time.monotonic() - started)
        return replace(row, error=_message(made), seconds=time.monotonic() - started)
    compiled, registers, spilled = made
    shared, limit = int(compiled.metadata.shared), SHARED_LIMIT[job.target]
    return replace(
        row,
        registers=registers,
        spill_bytes=spilled,
        shared_bytes=shared,
        seconds=time.monotonic() - started,
        error=f"needs {shared} bytes of shared memory, a program has {limit} there" if shared > limit else "",
    )


def _nvidia(asm: dict[str, Any], target: str) -> tuple[int, int]:
    """Registers and spilled bytes a thread, as ptxas reports them."""
    ptxas = importlib.import_module("triton.backends.nvidia.compiler").get_ptxas(int(target[3:])).path
    architecture = re.search(r"^\.target (\w+)", asm["ptx"], re.MULTILINE)
    assert architecture is not None, "PTX without .target"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(asm["ptx"])
        file.flush()
        command = [ptxas, "-v", f"--gpu-name={architecture[1]}", file.name, "-o", os.devnull]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return _number(r"Used (\d+) registers", report), _number(r"(\d+) bytes spill stores", report)


def _amd(asm: dict[str, Any], target: str) -> tuple[int, int]:
    """VGPRs and spilled bytes a lane, from the metadata in the assembly; a VGPR has 4 bytes a lane."""
    text = asm["amdgcn"]
    return _number(r"\.vgpr_count:\s+(\d+)", text), 4 * _number(r"\.vgpr_spill_count:\s+(\d+)", text)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, f"the compiler's report has no {pattern!r}"
    return int(found[1])


def _attempt(call: Callable[[], T]) -> T | Exception:
    """What a call gives or raises: this is where a candidate's failure, or its compiler's, becomes a verdict. A machine
    that lacks memory, disk or a tool is none."""
    try:
        return call()
    except (MemoryError, OSError):
        raise
    except Exception as error:  # its own, Triton's and LLVM's errors have no base of their own
        return error


def _message(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if len(text) < 4000 else f"{text[:2000]}\n...\n{text[-2000:]}"


def run_gate(profile: KernelProfile, load: Callable[[], Any]) -> tuple[list[KernelResources], str]:
    """Resources of every distinct launch, and why there are none if the op can't be loaded or called."""
    rows: list[KernelResources] = []
    compiled: set[tuple[Any, ...]] = set()
    function = _attempt(load)
    if isinstance(function, Exception):
        return [], f"the op can't be imported: {type(function).__name__}: {_message(function)}"
    for case in cases(profile):
        launches: list[Launch] = []
        failed = _attempt(lambda: record(function, profile, make_inputs(profile, case), launches))
        if isinstance(failed, ValueError) and (fitting := divisible(profile, case, str(failed))) is not None:
            case = fitting
            failed = _attempt(lambda: record(function, profile, make_inputs(profile, case), launches))
        if isinstance(failed, Exception):
            return (
                rows,
                f"the op fails on CPU tensors of sizes {case.sizes}: {type(failed).__name__}: {_message(failed)}",
            )
        for launch, target in itertools.product(launches, case.targets):
            job = _attempt(lambda: specialise(launch, target))
            if isinstance(job, Exception):  # an argument or option that this target's JIT refuses
                rows.append(KernelResources(launch.kernel.__name__, launch.phase, target, "", error=_message(job)))
                continue
            key = (launch.kernel, target, job.source.hash(), str(job.options))
            if key not in compiled:
                compiled.add(key)
                rows.append(compile_job(job))
    return rows, ""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m liger_dev.grading.compile_gate")
    parser.add_argument("name")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--module", default="", help="the op's module; kernels.ops.NAME unless given")
    options = parser.parse_args(argv)

    os.environ.pop("TRITON_INTERPRET", None)
    sys.path.insert(0, str(options.root))
    path = options.root / "profiles" / f"{options.name}.yaml"
    profile = parse_profile(path.read_text(), str(path))
    module = options.module or f"kernels.ops.{options.name}"
    rows, error = run_gate(profile, lambda: getattr(importlib.import_module(module), profile.function_class_name))
    options.out.write_text(print_gate(rows, error))


if __name__ == "__main__":
    main()
