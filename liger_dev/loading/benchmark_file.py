"""A file by KernelBench's convention in, its `Model`'s operation out: `get_inputs` gives shapes, `get_init_inputs` constants."""

import inspect
import math

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from torch._subclasses import FakeTensorMode

from liger_dev.errors import BadInput
from liger_dev.loading.cutting import holds_layers
from liger_dev.loading.modules import build_module
from liger_dev.loading.modules import cut_out
from liger_dev.loading.modules import fixed_sizes
from liger_dev.loading.modules import unshaped_operation
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import Place
from liger_dev.loading.operation import users_code
from liger_dev.loading.probe import give_shapes
from liger_dev.loading.signature import Arguments
from liger_dev.loading.usual_shapes import Shape
from liger_dev.records import Scalar
from liger_dev.records import Tensor

_USUAL = {1: "H", 2: "BH", 3: "BTH", 4: "BCHW", 5: "BCDHW"}
_NAMES = "HBTCWDKNMPQRS"  # in this order where a usual name is taken
_SMALL = 4
# Elements of one tensor: sizes that a module fixes are run as they are, and benchmarks like them large.
_LARGEST = 1 << 26


@dataclass(frozen=True)
class Axes:
    """Shapes of all tensors by name, and the size of each axis in the benchmark."""

    shapes: dict[str, Shape]
    sizes: dict[str, int]


def is_benchmark(module: ModuleType) -> bool:
    return callable(getattr(module, "get_inputs", None))


def benchmark_operation(
    module: ModuleType,
    kind: type[torch.nn.Module],
    init: dict[str, Any],
    given: dict[str, Shape],
    part: int,
    place: Place,
) -> Operation:
    """The forward of the file's model. Axes are named after equal sizes; `given` are the shapes that the user gave.

    Raises:
        BadInput: the model can't be built or run, or no naming of its axes fits.
    """
    built = build_module(kind, _init_inputs(module, kind, place) | init, place)
    values = _inputs(module, place)
    taken = _arguments(built.module, values, place)
    operation, own = unshaped_operation(built, taken, place)
    tensors = {t.name: tuple(v.shape) for t, v in zip(taken.tensors, _tensors(values), strict=True)}
    whole = _shaped(operation, tensors, own, fixed_sizes(list(built.kwargs.values())), given)
    return cut_out(whole, given, part) if holds_layers(built.module) else whole


def _init_inputs(module: ModuleType, kind: type[torch.nn.Module], place: Place) -> dict[str, Any]:
    if not hasattr(module, "get_init_inputs"):
        return {}
    with users_code("get_init_inputs fails", place, "it returns the list of arguments of __init__"):
        values = module.get_init_inputs()
        if isinstance(values, dict):
            return values
        return dict(inspect.signature(kind).bind(*values).arguments)


def _inputs(module: ModuleType, place: Place) -> list[Any]:
    """What `get_inputs` returns, without its memory: fake tensors have shapes and dtypes alone."""
    try:
        with users_code("get_inputs fails", place), FakeTensorMode():
            return list(module.get_inputs())
    except BadInput:
        with users_code("get_inputs fails", place, "it returns the list of arguments of forward"):
            return list(module.get_inputs())


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _arguments(model: torch.nn.Module, values: list[Any], place: Place) -> Arguments:
    """The arguments of forward, each what `get_inputs` gives for it."""
    with users_code("get_inputs does not fit forward", place, "it returns the list of arguments of forward"):
        bound = inspect.signature(model.forward).bind(*values).arguments
    tensors: list[Tensor] = []
    scalars: list[Scalar] = []
    constants: dict[str, Any] = {}
    for name, value in bound.items():
        if isinstance(value, torch.Tensor):
            tensors.append(Tensor(name, (), _kind(value)))
        elif isinstance(value, float):
            scalars.append(Scalar(name, "float", value))
        else:
            constants[name] = value
    if not tensors:
        raise BadInput("get_inputs returns no tensor", place.shown, "let it return the list of arguments of forward")
    return Arguments(tuple(tensors), tuple(scalars), constants)


def _kind(value: torch.Tensor) -> str:
    return "float" if value.is_floating_point() else "bool" if value.dtype is torch.bool else "int"


def _shaped(
    operation: Operation,
    tensors: dict[str, tuple[int, ...]],
    own: dict[str, tuple[int, ...]],
    numbers: list[int],
    given: dict[str, Shape],
) -> Operation:
    """The operation with the first naming of axes, and the fewest sizes fixed, that it runs with.

    A naming that fits at the usual sizes goes before one that needs a larger axis: an index that is short enough fits
    anywhere. The naming that makes equal sizes one axis comes after both."""
    inputs = {t.name: tensors[n] for t, n in zip(operation.tensors, tensors)}
    wanted = {name: shape for name, shape in given.items() if name in inputs or name in own}
    failure: BadInput | None = None
    *usual, merged = _namings(inputs, own)
    tries = [
        ((fixing, naming is merged, larger), larger, row)
        for naming in (*usual, merged)
        for fixing, row in enumerate(_fixings(naming, own, numbers))
        for larger in (False, True)
    ]
    for _, larger, (axes, sizes) in sorted(tries, key=lambda row: row[0]):
        shapes = axes.shapes | wanted
        if _largest(shapes, sizes) > _LARGEST:
            continue
        ranged = tuple(_ranged(tensor, operation.tensors, shapes) for tensor in operation.tensors)
        try:
            shaped = give_shapes(replace(operation, tensors=ranged, sizes=sizes), shapes, larger)
        except BadInput as error:
            failure = failure or error
            continue
        return replace(shaped, assumptions=(*shaped.assumptions, *_said(shaped, inputs, wanted)))
    raise failure or BadInput(
        "the model fixes sizes that are too large to be run here",
        operation.place.shown,
        "make the file's sizes smaller",
    )


def _namings(inputs: dict[str, tuple[int, ...]], own: dict[str, tuple[int, ...]]) -> Iterator[Axes]:
    """Equal sizes of different tensors are one axis, of one tensor two; then, equal sizes anywhere are one axis."""
    for from_right in (True, False):
        yield _named(inputs, own, from_right)
    sizes: dict[str, int] = {}
    for shape in (*inputs.values(), *own.values()):
        for size in shape:
            if size > 1 and size not in sizes.values():
                sizes[_new("H", sizes)] = size
    by_size = {size: axis for axis, size in sizes.items()}
    yield Axes({n: tuple(by_size.get(size, size) for size in s) for n, s in (inputs | own).items()}, sizes)


def _named(inputs: dict[str, tuple[int, ...]], own: dict[str, tuple[int, ...]], from_right: bool) -> Axes:
    sizes: dict[str, int] = {}
    shapes: dict[str, Shape] = {}
    for name, shape in (inputs | own).items():
        usual = _USUAL.get(len(shape), "")
        axes: list[str | int] = [1] * len(shape)
        order = range(len(shape))
        for dim in reversed(order) if from_right else order:
            size = shape[dim]
            known = [axis for axis, value in sizes.items() if value == size and axis not in axes]
            if size == 1 or (name in own and size <= _SMALL and not known):
                axes[dim] = size
                continue
            axes[dim] = known[0] if known else _new("K" if name in own else usual[dim : dim + 1], sizes)
            sizes[str(axes[dim])] = size
        shapes[name] = tuple(axes)
    return Axes(shapes, sizes)


def _new(usual: str, taken: dict[str, int]) -> str:
    names: list[str] = [usual, *_NAMES, *(f"N{number}" for number in range(2, 99))]
    return next(name for name in names if name and name not in taken)


def _fixings(axes: Axes, own: dict[str, tuple[int, ...]], numbers: list[int]) -> Iterator[tuple[Axes, dict[str, int]]]:
    """Sizes to fix: those of parameters, then those that `__init__` is told too, then all but the first, then all."""
    held = {axis for name in own for axis in axes.shapes[name] if isinstance(axis, str)}
    told = held | {axis for axis, size in axes.sizes.items() if size in numbers}
    first = next(iter(axes.shapes.values()))[:1]
    for names in dict.fromkeys(map(frozenset, (held, told, set(axes.sizes) - set(first), set(axes.sizes)))):
        yield axes, {axis: size for axis, size in axes.sizes.items() if axis in names}


def _largest(shapes: dict[str, Shape], sizes: dict[str, int]) -> int:
    return max(math.prod(sizes.get(a, 20) if isinstance(a, str) else a for a in shape) for shape in shapes.values())


def _ranged(tensor: Tensor, tensors: tuple[Tensor, ...], shapes: dict[str, Shape]) -> Tensor:
    """Whole numbers index the first axis that they do not have themselves, as class labels do."""
    if tensor.dtype != "int":
        return tensor
    others = [axis for t in tensors if t.dtype == "float" for axis in shapes[t.name] if isinstance(axis, str)]
    return replace(tensor, range=next((axis for axis in others if axis not in shapes[tensor.name]), ""))


def _said(operation: Operation, inputs: dict[str, tuple[int, ...]], given: dict[str, Shape]) -> tuple[str, ...]:
    shown = [f"{t.name} ({', '.join(map(str, t.shape))})" for t in operation.tensors if t.name not in given]
    said = (
        [f"axes are named after the sizes of get_inputs: {', '.join(shown)}; pass --shape to change"] if shown else []
    )
    said += [f"{t.name} is taken for indices below {t.range}" for t in operation.tensors if t.range]
    return tuple(said)
