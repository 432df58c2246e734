"""An operation in, the text of its reference out: exported, printed as torch code, and compared with the original."""

import functools

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from liger_dev.compiler.inlining import inline_blocks
from liger_dev.compiler.one_hot import restore
from liger_dev.compiler.one_hot import sizes_kept
from liger_dev.compiler.trace import quiet
from liger_dev.errors import BadInput
from liger_dev.errors import Unsupported
from liger_dev.loading.operation import Bound
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import import_file
from liger_dev.loading.operation import users_code
from liger_dev.loading.probe import samples
from liger_dev.loading.probe import trial_values
from liger_dev.loading.reference_file import printed_file
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.torch_text import Traced
from liger_dev.torch_text import imports_of
from liger_dev.torch_text import print_function
from liger_dev.traced_scalars import tags_found

# A few units in the last place: the printed function runs the same operations in the same order.
_TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 8e-3}


def print_reference(name: str, operation: Operation, origin: str, folder: Path) -> Reference:
    """A standalone reference with the operation's tensors and those float scalars that show in its graph.

    Raises:
        BadInput: torch.export can't trace it.
        Unsupported: an operation can't be printed, or the printed text computes something else.
    """
    required = next((s.name for s in operation.scalars if s.default is None and s.type != "float"), "")
    if required:
        raise BadInput(f"the argument '{required}' has no value", origin, f"give it: --init {required}=VALUE")
    tagged = tuple(scalar for scalar in operation.scalars if scalar.type == "float")
    tags = {scalar.name: _tag(scalar, i) for i, scalar in enumerate(tagged)}
    traced = operation.graph or trace_operation(operation, tags)
    scalars = tuple(scalar for scalar in tagged if scalar.name in tags_found(traced.graph, traced.tags))
    initial = {tensor.init for tensor in operation.tensors}
    kept = [s for s in operation.scalars if s not in scalars and s.default is not None and s.name != "inplace"]
    kept = [s for s in kept if s.type != "float" or f"full({s.default:.6g})" not in initial]
    said = [f"{s.name} = {s.default!r} is a constant of the reference" for s in kept]
    if len(scalars) < len(tags):
        traced = trace_operation(operation, {scalar.name: tags[scalar.name] for scalar in scalars})
    try:
        text = _printed(name, operation, traced, scalars, origin, folder)
    except _Differs:
        said += [
            f"{s.name} = {s.default!r} is a constant of the reference: its use could not be traced" for s in scalars
        ]
        scalars = ()
        try:
            text = _printed(name, operation, trace_operation(operation, {}), scalars, origin, folder)
        except _Differs as error:
            raise Unsupported(error.what, error.where, error.todo) from error
    reference = Reference(name, text, operation.tensors, scalars, origin, operation.summary, operation.assumptions)
    return replace(reference, assumptions=(*reference.assumptions, *said))


class _Differs(Unsupported):
    """The printed function does not compute what the original does."""


def _printed(
    name: str, operation: Operation, traced: Traced, scalars: tuple[Scalar, ...], origin: str, folder: Path
) -> str:
    function = print_function(name, traced, operation.tensors, scalars)
    text = printed_file(imports_of(function), function, operation.tensors, operation.summary, origin)
    printed = getattr(import_file(text, folder / f"printed_{name}.py"), name)
    compare(printed, operation, traced.tags)
    return text


def _tag(scalar: Scalar, position: int) -> float:
    """A number near the default, so that branches stay the same, with digits that occur nowhere else."""
    return float((scalar.default or 0.7182818) * (1.0 + (position + 1) * 0.00131415926535))


def trace_operation(operation: Operation, tags: dict[str, float]) -> Traced:
    """The operation's graph, with sizes symbolic where they may vary.

    Raises:
        BadInput: torch.export can't trace it.
        Unsupported: it holds a tensor of its own.
    """
    inputs = samples(operation, torch.bfloat16)
    names = list(inputs)
    dims = tuple({i: torch.export.Dim.AUTO for i, n in enumerate(t.shape) if n > 1} for t in inputs.values())
    bound = operation.bind(trial_values(operation.scalars) | tags)

    class Wrapper(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            return bound(dict(zip(names, tensors)))

    with quiet(), sizes_kept():
        program = _export(Wrapper(), tuple(inputs.values()), dims, operation)
    inline_blocks(program)
    restore(program.graph)
    placeholders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    signature = program.graph_signature
    lifted = {**signature.inputs_to_lifted_tensor_constants, **signature.inputs_to_buffers}
    held = {**program.state_dict, **program.constants}
    users = [name for name in placeholders if name in signature.user_inputs]
    others = [name for name in placeholders if name not in users and name not in lifted]
    constants = {name: held[target] for name, target in lifted.items()}
    large = [name for name, value in constants.items() if value.ndim]
    if others or large:
        raise Unsupported(
            f"the operation holds a tensor of its own: {(others + large)[0]}",
            operation.place.shown,
            "pass it as an argument",
        )
    return Traced(program.graph, dict(zip(users, names)), tags, constants, torch.bfloat16)


def _export(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dims: tuple[dict[int, Any], ...], operation: Operation
) -> torch.export.ExportedProgram:
    """Strict export keeps the names of helpers; what it can't trace is tried without it."""
    try:
        return torch.export.export(module, inputs, dynamic_shapes=(dims,), strict=True)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        pass
    with users_code(
        "torch.export can't trace the operation", operation.place, "write it as a plain function of tensors"
    ):
        return torch.export.export(module, inputs, dynamic_shapes=(dims,), strict=False)


def compare(printed: Callable[..., Any], operation: Operation, tags: dict[str, float]) -> None:
    """Raises _Differs unless both agree on fresh inputs, in float32 and bfloat16, at the defaults and at the tags."""
    for seed, (dtype, tolerance) in enumerate(_TOLERANCES.items()):
        for values in ({}, tags) if tags else ({},):
            inputs = samples(operation, dtype, seed + 10)
            given = trial_values(operation.scalars) | values
            try:
                with users_code("the operation fails", operation.place):
                    expected = _results(operation.bind(given), inputs)
            except BadInput:
                if dtype == torch.float32:
                    raise
                continue  # eager refuses the dtype, as complex numbers do bfloat16
            with users_code("the printed function fails", operation.place):
                found = _results(functools.partial(_call, printed, given), inputs)
            same = len(expected) == len(found) and all(map(lambda a, b: _agree(a, b, tolerance), expected, found))
            if not same:
                raise _Differs(
                    f"the reference's text computes something else than the original in {dtype}".replace("torch.", ""),
                    operation.place.shown,
                    "write the operation as a plain function in a file and give that file",
                )


def _call(printed: Callable[..., Any], values: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Any:
    return printed(**tensors, **values)


def _results(bound: Bound, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    with torch.no_grad():
        result = bound(inputs)
    return list(result) if isinstance(result, tuple | list) else [result]


def _agree(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    )
