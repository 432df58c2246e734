"""A class of torch.nn in, an Operation out: its forward's tensors, and its parameters as further tensors."""

import functools
import inspect
import itertools

from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

import torch

from torch.func import functional_call

from liger_dev.errors import BadInput
from liger_dev.loading.configurations import configuration
from liger_dev.loading.configurations import split_fields
from liger_dev.loading.configurations import takes_configuration
from liger_dev.loading.cutting import cut
from liger_dev.loading.cutting import holds_layers
from liger_dev.loading.frozen import detached
from liger_dev.loading.operation import Bound
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import users_code
from liger_dev.loading.printing import trace_operation
from liger_dev.loading.probe import give_shapes
from liger_dev.loading.probe import run
from liger_dev.loading.probe import samples
from liger_dev.loading.signature import ONES
from liger_dev.loading.signature import ZEROS
from liger_dev.loading.signature import Arguments
from liger_dev.loading.signature import public_name
from liger_dev.loading.signature import read_signature
from liger_dev.loading.usual_arguments import names_size
from liger_dev.loading.usual_arguments import usual_sizes
from liger_dev.loading.usual_shapes import LABELS
from liger_dev.loading.usual_shapes import Shape
from liger_dev.records import Scalar
from liger_dev.records import Tensor

# Sizes up to this one stay numbers; larger ones are axes.
_SMALL = 4
_AXES = "KNMPQ"
_CHANNELS = frozenset(("num_channels", "num_features", "num_groups"))


def module_operation(
    kind: type[torch.nn.Module], init: dict[str, Any], shapes: dict[str, Shape], place: Place, part: int = 0
) -> Operation:
    """The module's forward as a function of its inputs and parameters, with shapes.

    Of a module that holds linear layers it is the operation between them, as `part` says.

    Raises:
        BadInput: an argument of `__init__` is missing or unknown, or forward takes no tensor.
    """
    takes = inspect.signature(kind).parameters
    forwards = {name: init[name] for name in inspect.signature(kind.forward).parameters if name in init}
    forwards = {name: value for name, value in forwards.items() if name not in takes}
    built = build_module(kind, {name: value for name, value in init.items() if name not in forwards}, place)
    taken = read_signature(built.module.forward, forwards, f"{place.shown} forward")
    if holds_layers(built.module):
        return cut_operation(built, taken, shapes, place, part)
    if part:
        raise BadInput("the module holds no linear layers to cut at", "--part", "leave --part out")
    return forward_operation(built, taken, shapes, place)


def cut_operation(built: "Built", taken: Arguments, shapes: dict[str, Shape], place: Place, part: int) -> Operation:
    """The operation between a module's linear layers; `shapes` are of the module's inputs or of the part's."""
    inputs = {public_name(tensor.name) for tensor in taken.tensors}
    whole = forward_operation(built, taken, {n: shape for n, shape in shapes.items() if n in inputs}, place)
    return cut_out(whole, shapes, part)


def cut_out(whole: Operation, shapes: dict[str, Shape], part: int) -> Operation:
    """The part of a whole module's operation; `shapes` as the user gave them."""
    inputs = {tensor.name for tensor in whole.tensors}
    operation = cut(whole, trace_operation(whole, {}), part, {})
    inside = {n: shape for n, shape in shapes.items() if n not in inputs or n in {t.name for t in operation.tensors}}
    return give_shapes(operation, {t.name: t.shape for t in operation.tensors} | inside) if inside else operation


@dataclass(frozen=True)
class Built:
    """A module with the arguments that `kind` built it with, and what was assumed about them."""

    module: torch.nn.Module
    kind: Callable[..., torch.nn.Module]
    kwargs: dict[str, Any]
    assumptions: tuple[str, ...] = ()


def build_module(kind: type[torch.nn.Module], init: dict[str, Any], place: Place) -> Built:
    """The module, in evaluation mode. Raises BadInput for a missing or unknown argument of `__init__`."""
    kwargs, said = _init_arguments(kind, init, place)
    with users_code("the module can't be built", place, "give its arguments with --init name=value"):
        return Built(kind(**kwargs).eval(), kind, kwargs, said)


def forward_operation(built: Built, taken: Arguments, shapes: dict[str, Shape], place: Place) -> Operation:
    """The forward of a module that is built already, with shapes; `taken` is what forward takes."""
    operation, own = unshaped_operation(built, without_optional(taken, shapes), place)
    return _shaped(operation, own, built.kwargs, shapes)


def unshaped_operation(built: Built, taken: Arguments, place: Place) -> tuple[Operation, dict[str, tuple[int, ...]]]:
    """The forward of a module without shapes for its inputs, and the sizes of its parameters.

    Raises:
        BadInput: the module holds a buffer of whole numbers, or forward needs an argument that is no tensor.
    """
    module, kind, kwargs = built.module, built.kind, built.kwargs
    buffers = {path: buffer for path, buffer in module.named_buffers() if buffer.ndim}
    whole = next((path for path, buffer in buffers.items() if not buffer.is_floating_point()), "")
    if whole:
        raise BadInput(
            f"the module holds the buffer '{whole}' of {buffers[whole].dtype}",
            place.shown,
            "write the operation as a function that takes it as an argument",
        )
    required = [scalar.name for scalar in taken.scalars if scalar.default is None]
    if required:
        raise BadInput(
            f"forward's argument '{required[0]}' is no tensor and has no default",
            place.shown,
            "give it a default value",
        )
    inputs = {public_name(tensor.name): tensor.name for tensor in taken.tensors}
    values = {**dict(module.named_parameters()), **buffers}
    parameters = {_parameter_name(path, inputs): path for path in values}

    own = [scalar for scalar in taken.scalars if scalar.name not in kwargs]
    constants = taken.constants | {scalar.name: scalar.default for scalar in own}

    def bind(scalars: dict[str, Any]) -> Bound:
        given = {name: value for name, value in scalars.items() if name in kwargs}
        bound = kind(**(kwargs | given)).eval() if given else module
        others = constants | {name: value for name, value in scalars.items() if name not in kwargs}
        return functools.partial(_call, bound, inputs, parameters, others)

    tensors = [Tensor(name, (), tensor.dtype) for name, tensor in zip(inputs, taken.tensors, strict=True)]
    tensors += [
        Tensor(name, (), init="" if path in buffers else _init_of(values[path])) for name, path in parameters.items()
    ]
    scalars = tuple(Scalar(name, "float", value) for name, value in kwargs.items() if isinstance(value, float))
    said = (*built.assumptions, *taken.assumptions)
    operation = Operation(bind, tuple(tensors), (*scalars, *own), place, assumptions=said)
    held = tuple(name for name, path in parameters.items() if path in buffers)
    operation = detached(operation, held, "in evaluation mode, an input without gradient for each buffer:")
    return operation, {name: tuple(values[path].shape) for name, path in parameters.items()}


def without_optional(taken: Arguments, shapes: dict[str, Shape]) -> Arguments:
    """Optional tensors are left out, but for usual parameters and those that a shape is given for. The weight of a loss
    is none of these: it is of classes or elements, and has no gradient."""
    is_loss = any(tensor.name in LABELS for tensor in taken.tensors)
    kept = ({"residual"} if is_loss else ONES | ZEROS | {"residual"}) | set(shapes)
    left = [t.name for t in taken.tensors if t.optional and t.name not in kept]
    if not left or len(left) == len(taken.tensors):
        return taken
    said = f"{', '.join(left)} left out (None); pass --shape {left[0]}=AXES to take {'it' if len(left) == 1 else 'one'}"
    tensors = tuple(t for t in taken.tensors if t.name not in left)
    return replace(taken, tensors=tensors, assumptions=(*taken.assumptions, said))


def _call(
    module: torch.nn.Module,
    inputs: dict[str, str],
    parameters: dict[str, str],
    others: dict[str, Any],
    tensors: dict[str, torch.Tensor],
) -> Any:
    state = {path: tensors[name] for name, path in parameters.items()}
    given = {own: tensors[name] for name, own in inputs.items() if name in tensors}
    return functional_call(module, state, (), given | others)


def _init_arguments(
    kind: type[torch.nn.Module], init: dict[str, Any], place: Place
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments of `__init__`: as given, the defaults that are numbers, and configuration objects."""
    declared = inspect.signature(kind).parameters
    plain, fields = split_fields(init)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in declared.values())
    unknown = [name for name in (*plain, *fields) if name not in declared and not open_ended]
    if unknown:
        takes = ", ".join(declared) or "no arguments"
        raise BadInput(
            f"the module's __init__ has no argument '{unknown[0]}'", f"--init {unknown[0]}", f"it takes {takes}"
        )
    named = [p for p in declared.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    objects = [p for p in named if p.name not in plain and takes_configuration(p, fields)]
    objects = [p for p in objects if p.default is p.empty or p.name in fields]
    built = {p.name: configuration(kind, p, fields.get(p.name, {}), place) for p in objects}
    left = [p for p in named if p.default is p.empty and p.name not in plain and p.name not in built]
    assumed = usual_sizes(left)
    missing = [p.name for p in left if p.name not in assumed]
    if missing:
        flags = " ".join(f"--init {name}=VALUE" for name in missing)
        raise BadInput(f"the module's __init__ needs '{missing[0]}'", place.shown, f"give {flags}")
    sizes = {p.name: p.default for p in named if type(p.default) is int and p.default > 1 and names_size(p.name)}
    kwargs = {p.name: p.default for p in named if isinstance(p.default, float)} | sizes | plain | assumed
    said = [said for _, said in built.values()]
    if assumed:
        listed = ", ".join(f"{name}={size}" for name, size in assumed.items())
        said.append(f"sizes were not given: assumed {listed}; pass --init {next(iter(assumed))}=VALUE to change")
    return kwargs | {name: value for name, (value, _) in built.items()}, tuple(said)


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
    given = fixed_sizes([*kwargs.values(), *last])
    products = [a * b for a, b in itertools.combinations(given, 2)]
    sizes = [*large, None, *given, *products]
    inputs = [tensor.name for tensor in operation.tensors if tensor.name not in own]
    failure: BadInput | None = None
    grown: Operation | None = None
    for usual, axis in _usual_inputs(own, kwargs, width):
        guessed = {name: usual for name in inputs if usual and name not in shapes}
        try:
            found = first_that_runs(operation, axis, sizes, own, {**guessed, **shapes})
        except BadInput as error:
            failure = failure or error
            continue
        said = f"shapes were not given: assumed {', '.join(f'{n} ({_text(usual)})' for n in guessed)}"
        found = replace(
            found, assumptions=(*found.assumptions, *([f"{said}; pass --shape to change"] if guessed else []))
        )
        if not _adds_dimensions(found):
            return found
        grown = grown or found
    if grown is not None:
        return grown
    assert failure is not None, "there is at least one try"
    raise failure


def _adds_dimensions(operation: Operation) -> bool:
    """Whether a result has more dimensions than any tensor: a parameter was meant for inputs of more."""
    with torch.no_grad():
        result = run(operation, samples(operation))
    results = result if isinstance(result, tuple | list) else [result]
    ranks = [len(tensor.shape) for tensor in operation.tensors]
    return any(isinstance(r, torch.Tensor) and r.ndim > max(ranks) for r in results)


def _usual_inputs(own: dict[str, tuple[int, ...]], kwargs: dict[str, Any], width: str) -> Iterator[tuple[Shape, str]]:
    """Shapes of inputs to try beside the usual ones, with the axis whose size the module may fix: channels come second
    where `__init__` is told their number, and last of all for any vector; a parameter of several dimensions has those of
    an input's last ones."""
    if _CHANNELS & set(kwargs):
        yield ("B", "C", "H", "W"), "C"
        yield ("B", "C", "L"), "C"
    large = max((shape for shape in own.values()), key=len, default=())
    if len(large) > 2 and large[0] == 1 and max(large) > 1:  # written to be broadcast against an input of as many
        free = iter("BTSR")
        axis = width if large[-1] == max(large) else "C"
        named = _axes(large, {axis: max(large)})
        yield tuple(next(free) if n == 1 else name for n, name in zip(large, named)), axis
    yield (), width
    if len(large) > 1:
        yield ("B", *_axes(large, {width: large[-1]})), width
    if any(len(shape) == 1 for shape in own.values()):
        yield ("B", "C", "H", "W"), "C"


def _text(shape: Shape) -> str:
    return ", ".join(map(str, shape))


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
