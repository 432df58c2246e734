"""A class of torch.nn in, an Operation out: its forward's tensors, and its parameters as further tensors."""

import functools
import inspect

from dataclasses import replace
from typing import Any

import torch

from torch.func import functional_call

from liger_dev.errors import BadInput
from liger_dev.loading.operation import Bound
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import users_code
from liger_dev.loading.probe import Shape
from liger_dev.loading.probe import give_shapes
from liger_dev.loading.signature import public_name
from liger_dev.loading.signature import read_signature
from liger_dev.records import Scalar
from liger_dev.records import Tensor

# Sizes up to this one stay numbers; larger ones are axes.
_SMALL = 4
_AXES = "KNMPQ"


def module_operation(
    kind: type[torch.nn.Module], init: dict[str, Any], shapes: dict[str, Shape], place: Place
) -> Operation:
    """The module's forward as a function of its inputs and parameters, with shapes.

    Raises:
        BadInput: an argument of `__init__` is missing or unknown, or forward takes no tensor.
    """
    kwargs = _init_arguments(kind, init, place)
    with users_code("the module can't be built", place, "give its arguments with --init name=value"):
        module = kind(**kwargs).eval()
    held = [path for path, _ in module.named_buffers()]
    if held:
        raise BadInput(
            f"the module holds the buffer '{held[0]}', which is no parameter",
            place.shown,
            "write the operation as a function that takes it as an argument",
        )
    taken = read_signature(module.forward, {}, f"{place.shown} forward")
    required = [scalar.name for scalar in taken.scalars if scalar.default is None]
    if required:
        raise BadInput(
            f"forward's argument '{required[0]}' is no tensor and has no default",
            place.shown,
            "give it a default value",
        )
    inputs = {public_name(tensor.name): tensor.name for tensor in taken.tensors}
    parameters = {_parameter_name(path, inputs): path for path, _ in module.named_parameters()}
    values = dict(module.named_parameters())

    def bind(scalars: dict[str, Any]) -> Bound:
        bound = kind(**(kwargs | scalars)).eval() if scalars else module
        return functools.partial(_call, bound, inputs, parameters)

    tensors = [Tensor(name, (), tensor.dtype) for name, tensor in zip(inputs, taken.tensors, strict=True)]
    tensors += [Tensor(name, (), init=_init_of(values[path])) for name, path in parameters.items()]
    scalars = tuple(Scalar(name, "float", value) for name, value in kwargs.items() if isinstance(value, float))
    operation = Operation(bind, tuple(tensors), scalars, place, assumptions=taken.assumptions)
    return _shaped(operation, {n: tuple(values[path].shape) for n, path in parameters.items()}, kwargs, shapes)


def _call(
    module: torch.nn.Module, inputs: dict[str, str], parameters: dict[str, str], tensors: dict[str, torch.Tensor]
) -> Any:
    state = {path: tensors[name] for name, path in parameters.items()}
    return functional_call(module, state, (), {own: tensors[name] for name, own in inputs.items() if name in tensors})


def _init_arguments(kind: type[torch.nn.Module], init: dict[str, Any], place: Place) -> dict[str, Any]:
    """Arguments of `__init__`: as given, and the defaults that are numbers."""
    declared = inspect.signature(kind).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in declared.values())
    unknown = [name for name in init if name not in declared and not open_ended]
    if unknown:
        takes = ", ".join(declared) or "no arguments"
        raise BadInput(
            f"the module's __init__ has no argument '{unknown[0]}'", f"--init {unknown[0]}", f"it takes {takes}"
        )
    plain = [p for p in declared.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in plain if p.default is p.empty and p.name not in init]
    if missing:
        flags = " ".join(f"--init {name}=VALUE" for name in missing)
        raise BadInput(f"the module's __init__ needs '{missing[0]}'", place.shown, f"give {flags}")
    return {p.name: p.default for p in plain if isinstance(p.default, float)} | init


def _parameter_name(path: str, inputs: dict[str, str]) -> str:
    name = path.replace(".", "_")
    return f"{name}_parameter" if name in inputs else name


def _init_of(value: torch.Tensor) -> str:
    """How a parameter's values look as they come from `__init__`."""
    value = value.detach()
    first = float(value.flatten()[0]) if value.numel() else 0.0
    if not bool((value == first).all()):
        return "normal"
    return {1.0: "ones", 0.0: "zeros"}.get(first, f"full({first:.6g})")


def _shaped(
    operation: Operation, own: dict[str, tuple[int, ...]], kwargs: dict[str, Any], shapes: dict[str, Shape]
) -> Operation:
    """Shapes for inputs and parameters: the last axis has the first size, of those the module may fix, that runs."""
    named = next((shape for name, shape in shapes.items() if name not in own and shape), ("H",))
    width = named[-1] if isinstance(named[-1], str) else "H"
    last = [shape[-1] for shape in own.values() if shape]
    large = fixed_sizes([size for size in last if size > _SMALL])
    sizes = [*large, None, *fixed_sizes([*kwargs.values(), *last])]
    return first_that_runs(operation, width, sizes, own, shapes)


def fixed_sizes(values: list[Any]) -> list[int]:
    """The whole numbers above one in arguments, nested in tuples or not."""
    flat: list[int] = []
    for value in values:
        if isinstance(value, tuple | list):
            flat += fixed_sizes(list(value))
        elif isinstance(value, int) and not isinstance(value, bool) and value > 1:
            flat.append(value)
    return list(dict.fromkeys(flat))


def first_that_runs(
    operation: Operation, width: str, sizes: list[int | None], own: dict[str, tuple[int, ...]], shapes: dict[str, Shape]
) -> Operation:
    """The operation with shapes, its last axis `width` as large as the first of `sizes` that it runs with (None: any)."""
    failure: BadInput | None = None
    for size in sizes:
        fixed = {width: size} if size else {}
        fixed_shapes = {name: _axes(shape, fixed) for name, shape in own.items()}
        try:
            return give_shapes(replace(operation, sizes=fixed), {**fixed_shapes, **shapes})
        except BadInput as error:
            failure = failure or error
    assert failure is not None, "there is at least one try"
    raise failure


def _axes(shape: tuple[int, ...], sizes: dict[str, int]) -> Shape:
    """Sizes as axes: those in `sizes` by their name, other large ones by a new one, which is added to `sizes`."""
    axes: list[str | int] = []
    for size in shape:
        known = next((axis for axis, value in sizes.items() if value == size), None)
        if known is None and size > _SMALL:
            known = next(axis for axis in _AXES if axis not in sizes)
            sizes[known] = size
        axes.append(known or size)
    return tuple(axes)
