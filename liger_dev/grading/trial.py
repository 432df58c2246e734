"""A reference and its compiled op in, what the emitted kernels get wrong out: they run on small inputs on the CPU.

For a child process with TRITON_INTERPRET set, since the text of the op is imported.
"""

import importlib
import sys

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from liger_dev.axes import extent
from liger_dev.axes import named
from liger_dev.choices import settings
from liger_dev.compiler.trace import load_function
from liger_dev.compiler.trace import runs
from liger_dev.compiler.trace import sizes_taken
from liger_dev.compiler.verify import InFloat64
from liger_dev.errors import BadInput
from liger_dev.generator import OP
from liger_dev.generator import kernel_files
from liger_dev.grading import interpreter
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import users_code
from liger_dev.loading.probe import trial_values
from liger_dev.profile import KernelProfile
from liger_dev.records import Reference
from liger_dev.records import Tensor
from liger_dev.render import render

# In the order in which axes appear: even sizes for halves and groups, odd ones for masks.
_EVEN = (2, 4, 6, 10, 14, 22, 26, 34)
_ODD = (3, 5, 7, 9, 11, 13, 15, 17)
_WIDE = 131
# More columns than a program holds at once: rows of this length are looped over.
_LONG = 20002
# Of the largest value; bfloat16 has eight bits, and some references round at every step.
_TOLERANCES = {torch.float32: 2e-4, torch.bfloat16: 5e-2}
# How many of eager's own errors are allowed, where these are beyond the tolerance: the function is ill-conditioned.
_EAGERS = 4.0
_UTILS = "kernels/ops/utils.py.jinja"


def disagreement(reference: Reference, profile: Mapping[str, Any], op: Mapping[str, Any], folder: Path) -> str:
    """The first output or gradient that differs from the float64 reference, in words; empty if none does.

    Args:
        folder: an empty folder for the op's files.
    """
    interpreter.install()
    function = load_function(reference, folder)
    try:
        with users_code("the emitted op can't be imported", Place(f"kernels/ops/{reference.name}.py")):
            kernel = _import_op(reference, KernelProfile.model_validate(profile), op, folder)
        return _first_difference(reference, function, kernel, op["op"]["divisors"])
    except BadInput as error:
        return error.what


def _import_op(
    reference: Reference, profile: KernelProfile, op: Mapping[str, Any], folder: Path
) -> type[torch.autograd.Function]:
    texts = {
        **kernel_files(reference, profile, op, (OP,)),
        "kernels/ops/utils.py": render(_UTILS, {}),
        "kernels/__init__.py": "",
        "kernels/ops/__init__.py": "",
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    module = importlib.import_module(f"kernels.ops.{reference.name}")
    return getattr(module, profile.function_class_name)  # type: ignore[no-any-return]


def _first_difference(
    reference: Reference,
    function: Callable[..., Any],
    kernel: type[torch.autograd.Function],
    divisors: Mapping[str, int],
) -> str:
    """`divisors`: what axes' sizes have to be multiples of."""
    refused, agreed = "", 0
    for own, (sizes, dtype, absent) in _settings(reference, function, divisors):
        inputs = _inputs(reference.tensors, sizes, dtype, absent)
        try:
            with users_code("the reference fails", Place(reference.name)):
                wanted = _wanted(function, own, inputs)
        except BadInput:  # it does not take these sizes: an odd number has no halves
            continue
        missing = f", without {', '.join(sorted(absent))}" if absent else ""
        chosen = "".join(f", {s.name}={s.default!r}" for s in own.scalars if s.choices)
        case = f"in {str(dtype).removeprefix('torch.')} for sizes {sizes}{missing}{chosen}"
        try:
            with users_code(f"the op fails {case}", Place(reference.name)):
                found = _found(kernel, own, inputs)
        except BadInput as error:
            if not isinstance(error.__cause__, ValueError):
                raise
            refused = refused or error.what
            continue  # a clear refusal of sizes that make no sense, such as an odd number for halves
        said = _compare(found, wanted, _TOLERANCES[dtype], {})
        if said:
            said = _compare(found, wanted, _TOLERANCES[dtype], _eager_errors(function, own, inputs, wanted))
        said = said or _compare_dtypes(found, function, own, inputs)
        if said:
            return f"{said} {case}"
        agreed += 1
    return "" if agreed else refused or "the reference runs with none of the sizes that were tried"


Trial = tuple[dict[str, int], torch.dtype, frozenset[str]]


def _settings(
    reference: Reference, function: Callable[..., Any], divisors: Mapping[str, int]
) -> Iterator[tuple[Reference, Trial]]:
    """Every trial with the defaults, then the two dtypes with each other setting that has kernels of its own."""
    usual, *others = settings(reference.scalars)
    trials = _trials(reference, function, divisors)
    for setting, own in [(usual, trials), *((setting, [trials[0], trials[-2], trials[-1]]) for setting in others)]:
        scalars = tuple(replace(s, default=setting.get(s.name, s.default)) for s in reference.scalars)
        yield from ((replace(reference, scalars=scalars), trial) for trial in own)


def _trials(reference: Reference, function: Callable[..., Any], divisors: Mapping[str, int]) -> list[Trial]:
    optional = frozenset(tensor.name for tensor in reference.tensors if tensor.optional)
    even, *others = [
        {axis: -(-size // divisors.get(axis, 1)) * divisors.get(axis, 1) for axis, size in sizes.items()}
        for sizes in _size_sets(reference)
    ]
    if not runs(function, reference, frozenset(), even):
        even = sizes_taken(function, reference, frozenset()) or even
    trials: list[Trial] = [(sizes, torch.float32, frozenset()) for sizes in (even, *others)]
    if optional:
        trials.append((even, torch.float32, optional))
    return [*trials, (even, torch.bfloat16, frozenset())]


def _size_sets(reference: Reference) -> list[dict[str, int]]:
    axes = named(reference.tensors)
    # An axis that only indices vary along is not looped over, but searched for each of its elements.
    last = [tensor.shape[-1] for tensor in reference.tensors if tensor.shape and tensor.dtype == "float"]
    widest = next((axis for axis in last if axis in axes), "")
    even, odd, ones = dict(zip(axes, _EVEN)), dict(zip(axes, _ODD)), dict.fromkeys(axes, 1)
    if not widest:
        return [even]
    return [even, odd, {**odd, widest: _WIDE}, ones, {**dict.fromkeys(axes, 2), widest: _LONG}]


def _inputs(
    tensors: tuple[Tensor, ...], sizes: dict[str, int], dtype: torch.dtype, absent: frozenset[str]
) -> dict[str, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(7)
    inputs: dict[str, torch.Tensor | None] = {}
    for tensor in tensors:
        shape = [extent(axis, sizes) for axis in tensor.shape]
        value = torch.randint(sizes.get(tensor.range, 2), shape, generator=generator)
        if tensor.dtype == "float":
            value = torch.randn(shape, generator=generator).to(dtype).requires_grad_()
        inputs[tensor.name] = value.bool() if tensor.dtype == "bool" else value
    return {name: None if name in absent else value for name, value in inputs.items()}


Results = dict[str, torch.Tensor]


def _wanted(function: Callable[..., Any], reference: Reference, inputs: dict[str, torch.Tensor | None]) -> Results:
    doubles = {name: _double(value) for name, value in inputs.items()}
    with InFloat64():
        result = function(**doubles, **_scalars(reference))
    return _with_gradients(result, doubles)


def _double(value: torch.Tensor | None) -> torch.Tensor | None:
    if value is None or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_()


def _found(
    kernel: type[torch.autograd.Function], reference: Reference, inputs: dict[str, torch.Tensor | None]
) -> Results:
    scalars = _scalars(reference)
    result = kernel.apply(*inputs.values(), *(scalars[scalar.name] for scalar in reference.scalars))  # type: ignore[no-untyped-call]
    return _with_gradients(result, inputs)


def _scalars(reference: Reference) -> dict[str, Any]:
    return {scalar.name: scalar.default for scalar in reference.scalars} | trial_values(reference.scalars)


def _with_gradients(result: Any, inputs: dict[str, torch.Tensor | None]) -> Results:
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    generator = torch.Generator().manual_seed(8)
    upstream = [torch.randn(output.shape, generator=generator, dtype=torch.float64) for output in outputs]
    leaves = {name: value for name, value in inputs.items() if value is not None and value.is_floating_point()}
    used = [(output, d.to(output.dtype)) for output, d in zip(outputs, upstream) if output.requires_grad]
    gradients = torch.autograd.grad(
        [output for output, _ in used], list(leaves.values()), [d for _, d in used], allow_unused=True
    )
    found = {f"output {i}" if i else "the output": output.detach() for i, output in enumerate(outputs)}
    for (name, leaf), gradient in zip(leaves.items(), gradients):
        found[f"d{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return found


def _compare_dtypes(
    found: Results, function: Callable[..., Any], reference: Reference, inputs: dict[str, torch.Tensor | None]
) -> str:
    try:
        with torch.no_grad(), users_code("the reference fails", Place(reference.name)):
            result = function(**inputs, **_scalars(reference))
    except BadInput:  # torch may lack a function for bfloat16 on the CPU
        return ""
    wanted = list(result) if isinstance(result, tuple | list) else [result]
    for (name, got), want in zip(found.items(), wanted):
        if got.dtype != want.dtype:
            return f"{name} is {got.dtype}, the reference's is {want.dtype}".replace("torch.", "")
    return ""


def _eager_errors(
    function: Callable[..., Any], reference: Reference, inputs: dict[str, torch.Tensor | None], wanted: Results
) -> dict[str, float]:
    """How far eager's own results are from the wanted ones; nothing where torch lacks a function for the dtype."""
    leaves = {
        n: t.detach().requires_grad_() if t is not None and t.is_floating_point() else t for n, t in inputs.items()
    }
    try:
        with users_code("the reference fails", Place(reference.name)):
            eager = _with_gradients(function(**leaves, **_scalars(reference)), leaves)
    except BadInput:
        return {}
    far = {name: (eager[name].double() - want).abs().nan_to_num(posinf=0.0) for name, want in wanted.items()}
    return {name: float(errors.max()) for name, errors in far.items() if errors.numel()}


def _compare(found: Results, wanted: Results, tolerance: float, errors: Mapping[str, float]) -> str:
    """`errors`: how far off each result may be beside the tolerance, in units of a few of eager's own errors."""
    if list(found) != list(wanted):
        return f"the op gives {len(found)} results, the reference {len(wanted)}"
    for name, want in wanted.items():
        got = found[name].double()
        if got.shape != want.shape:
            return f"{name} has the shape {tuple(got.shape)}, not {tuple(want.shape)}"
        scale = max(1.0, float(want.abs().nan_to_num(posinf=0.0).max())) if want.numel() else 1.0
        atol = tolerance * scale + _EAGERS * errors.get(name, 0.0)
        if not torch.allclose(got, want.double(), rtol=tolerance, atol=atol, equal_nan=True):
            return f"{name} differs by {float((got - want).abs().max()):.2g}"
    return ""
