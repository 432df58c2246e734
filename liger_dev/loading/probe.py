"""An operation in, its shapes and a verdict out: it is run on small inputs to see that it can be compiled at all."""

import contextlib
import math

from dataclasses import replace
from itertools import count
from typing import Any

import torch

from torch.overrides import TorchFunctionMode

from liger_dev.axes import extent
from liger_dev.axes import multiples
from liger_dev.axes import named
from liger_dev.errors import BadInput
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import users_code
from liger_dev.loading.usual_shapes import Shape
from liger_dev.loading.usual_shapes import as_indices
from liger_dev.loading.usual_shapes import usual_tensors
from liger_dev.records import Scalar
from liger_dev.records import Tensor

# Even and pairwise different, so that a wrong match of axes shows, and halves exist.
_SIZES = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
# How many times as large one axis is tried, for operations that divide it into groups, or take a part of fixed size.
_MULTIPLES = (2, 3, 4, 5, 8, 16, 32, 64, 6, 10, 12, 14, 20)
# Below this share of the output's own gradient, a gradient is the roundoff of zero.
_ROUNDOFF = 1e-6
# How many times as large all axes are where a gradient is zero at the usual sizes: a group may have been one element.
_MANY = 8
_ON_ITS_OWN = "run it by itself in Python on normally distributed numbers, which a kernel is tested with, and mend it"
_READS = frozenset("__bool__ __int__ __float__ __index__ item tolist numpy nonzero".split())


class _NoReading(TorchFunctionMode):
    """Refuses to turn a tensor into a Python value: control flow would then depend on data."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS:
            raise BadInput(
                f"the operation reads a tensor's value ({name.strip('_')}), so what it does depends on data",
                "",
                "express the choice with torch.where",
            )
        return func(*args, **(kwargs or {}))


def axis_sizes(operation: Operation, tensors: tuple[Tensor, ...]) -> dict[str, int]:
    """A small size for each named axis; the operation's own sizes where it fixes them."""
    known = {**operation.trial, **operation.sizes}
    free = iter(size for size in _SIZES if size not in known.values())
    parts = multiples(tensors)
    return {axis: known.get(axis) or math.lcm(next(free), parts.get(axis, 1)) for axis in named(tensors)}


def samples(
    operation: Operation, dtype: torch.dtype = torch.float32, seed: int = 0, absent: frozenset[str] = frozenset()
) -> dict[str, torch.Tensor]:
    """Random inputs by name; optional tensors in `absent` are left out."""
    sizes = axis_sizes(operation, operation.tensors)
    generator = torch.Generator().manual_seed(seed)
    given = [tensor for tensor in operation.tensors if tensor.name not in absent]
    return {tensor.name: _sample(tensor, sizes, dtype, generator) for tensor in given}


def _sample(tensor: Tensor, sizes: dict[str, int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Indices stay below the size of their axis, other whole numbers are 0 and 1."""
    dims = [extent(axis, sizes) for axis in tensor.shape]
    match tensor.dtype:
        case "int":
            return torch.randint(sizes.get(tensor.range, 2), dims, generator=generator)
        case "bool":
            return torch.randint(2, dims, generator=generator).bool()
    return torch.randn(dims, generator=generator).to(dtype)


def give_shapes(operation: Operation, given: dict[str, Shape], larger: bool = True) -> Operation:
    """The operation with a shape for each tensor: as given, else the first usual ones that it runs with. If all are
    given, one axis may be some times as large as usual, unless `larger` is False.

    Raises:
        BadInput: a shape is for an unknown tensor, or no usual shapes fit; the message shows how to give them.
    """
    for first in (False, True):
        apart = {name: _apart(shape, first) for name, shape in given.items()}
        if apart != given:
            with contextlib.suppress(BadInput):
                shaped_apart = give_shapes(operation, apart, larger)
                shown = ", ".join(f"{n} ({', '.join(map(str, s))})" for n, s in apart.items() if s != given[n])
                note = f"an axis that is named twice in one shape need not be as long both times: {shown}"
                return replace(shaped_apart, assumptions=(*shaped_apart.assumptions, note))
    names = [tensor.name for tensor in operation.tensors]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise BadInput(f"there is no tensor '{unknown[0]}'", "--shape", f"the tensors are {', '.join(names)}")
    missing = [tensor for tensor in operation.tensors if tensor.name not in given]
    failure: BadInput | None = None
    for usual in usual_tensors(missing):
        known = {tensor.name: tensor for tensor in usual}
        shaped = tuple(known.get(t.name) or replace(t, shape=given[t.name]) for t in operation.tensors)
        for tensors in dict.fromkeys((shaped, as_indices(shaped))):
            candidate = replace(operation, tensors=tensors)
            try:
                with torch.no_grad():
                    run(candidate, samples(candidate))
            except BadInput as error:
                failure = failure or error
                if isinstance(error.__cause__, BadInput | ImportError):
                    raise
                continue
            ranges = {t.name: t.range for t in operation.tensors}
            said = _assumed(usual, [t for t in tensors if t.range != ranges[t.name]])
            return replace(candidate, assumptions=(*operation.assumptions, *said))
    assert failure is not None, "there is at least one try"
    if larger and not missing and (found := _with_larger_axis(replace(operation, tensors=shaped))):
        return found
    example = " ".join(f"--shape {tensor.name}=B,T,H" for tensor in missing)
    if missing:
        raise BadInput(f"no usual shapes fit: {failure.what}", failure.where, f"give shapes, for example {example}")
    raise failure


def with_ranges(operation: Operation) -> Operation:
    """The operation with the axis that whole numbers stay below, where it refuses just those that do not."""
    return replace(operation, tensors=tuple(_ranged(operation, tensor) for tensor in operation.tensors))


def _ranged(operation: Operation, tensor: Tensor) -> Tensor:
    if tensor.dtype != "int" or tensor.range:
        return tensor
    sizes = axis_sizes(operation, operation.tensors)
    axes = {axis for t in operation.tensors if t.dtype == "float" for axis in t.shape} - set(tensor.shape)
    found = [
        axis
        for axis in sorted(str(axis) for axis in axes if axis in sizes)
        if _takes(operation, tensor.name, sizes[axis] - 1) and not _takes(operation, tensor.name, sizes[axis])
    ]
    return replace(tensor, range=found[0]) if len(found) == 1 else tensor


def _takes(operation: Operation, name: str, number: int) -> bool:
    """Whether the operation runs with this number everywhere in a tensor."""
    tensors = samples(operation)
    try:
        with torch.no_grad():
            run(operation, {**tensors, name: torch.full_like(tensors[name], number)})
    except BadInput:
        return False
    return True


def _apart(shape: Shape, first: bool) -> Shape:
    """A shape whose axes have a name each: the later ones of the same name, or the earlier ones, get another."""
    order = list(reversed(shape)) if first else list(shape)
    names: list[str | int] = []
    for axis in order:
        names.append(f"{axis}_{names.count(axis) + 1}" if isinstance(axis, str) and axis in names else axis)
    return tuple(reversed(names)) if first else tuple(names)


def _with_larger_axis(operation: Operation) -> Operation | None:
    """The operation with sizes that it runs with, if one axis that is some times as large is enough."""
    usual = axis_sizes(operation, operation.tensors)
    for multiple in _MULTIPLES:
        for axis in reversed([axis for axis in usual if axis not in operation.sizes]):
            size = multiple * usual[axis]
            if size in operation.sizes.values():
                continue
            candidate = replace(operation, trial=_with_size(usual, axis, size))
            try:
                with torch.no_grad():
                    run(candidate, samples(candidate))
            except BadInput:
                continue
            return candidate
    return None


def _with_size(sizes: dict[str, int], axis: str, size: int) -> dict[str, int]:
    """The sizes with another one for `axis`; an axis that has this size already gives way, so that a wrong match shows."""
    changed = {**sizes, axis: size}
    for other in [other for other, own in sizes.items() if own == size and other != axis]:
        changed[other] = next(n for n in count(2 * size, size) if n not in changed.values())
    return changed


def _assumed(tensors: list[Tensor], indices: list[Tensor]) -> tuple[str, ...]:
    shown = ", ".join(f"{t.name} ({', '.join(map(str, t.shape))})" for t in tensors)
    shapes = (f"shapes were not given: assumed {shown}; pass --shape to change",) if tensors else ()
    return (*shapes, *(f"{t.name} is taken for indices below {t.range}" for t in indices))


def run(operation: Operation, tensors: dict[str, torch.Tensor], scalars: dict[str, Any] | None = None) -> Any:
    """The operation's result. Raises BadInput for what its code raises, and where it reads a tensor's value."""
    with users_code("the operation fails", operation.place, _ON_ITS_OWN), _NoReading():
        return operation.bind(trial_values(operation.scalars) | (scalars or {}))(tensors)


def trial_values(scalars: tuple[Scalar, ...]) -> dict[str, Any]:
    """Values for scalars without a default."""
    usual = {"float": 0.5, "int": 2, "bool": True, "str": ""}
    return {s.name: s.choices[0] if s.choices else usual[s.type] for s in scalars if s.default is None}


def check(operation: Operation) -> None:
    """Raises BadInput unless the operation is a differentiable function of tensors that writes to none of them."""
    where = operation.place.shown
    tensors = samples(operation)
    before = {name: (tensor._version, tensor.clone()) for name, tensor in tensors.items()}
    with torch.no_grad():
        result = run(operation, tensors)
    for name, (version, value) in before.items():
        if tensors[name]._version != version or not torch.equal(tensors[name], value):
            raise BadInput(
                f"the operation writes to its input '{name}' in place", where, "work on a new tensor instead"
            )
    outputs = result if isinstance(result, tuple | list) else [result]
    if not outputs or not all(isinstance(output, torch.Tensor) for output in outputs):
        kinds = ", ".join(type(output).__name__ for output in outputs) or "nothing"
        raise BadInput(f"the operation returns {kinds}, not a tensor", where, "return a tensor or a tuple of tensors")
    _check_absent(operation)
    larger = {axis: _MANY * size for axis, size in axis_sizes(operation, operation.tensors).items()}
    if not _has_gradient(operation) and not _has_gradient(replace(operation, trial=larger | operation.sizes)):
        raise BadInput(
            "the gradient is zero everywhere",
            where,
            "a kernel for it can't be checked; does the output depend on an input?",
        )


def _check_absent(operation: Operation) -> None:
    absent = frozenset(tensor.name for tensor in operation.tensors if tensor.optional)
    if absent:
        with torch.no_grad():
            try:
                run(operation, samples(operation, absent=absent))
            except BadInput as error:
                names = ", ".join(sorted(absent))
                raise BadInput(
                    f"without its optional tensors ({names}) {error.what}", error.where, "drop their default None"
                ) from error


def _has_gradient(operation: Operation) -> bool:
    """Whether a gradient is more than roundoff. Raises BadInput if none flows, or its computation fails."""
    where = operation.place.shown
    tensors = samples(operation)
    floats = [tensor.requires_grad_() for tensor in tensors.values() if tensor.is_floating_point()]
    result = run(operation, tensors)
    results = result if isinstance(result, tuple | list) else [result]
    outputs = [o for o in results if o.requires_grad]
    if not any(o.is_floating_point() for o in results):
        return True  # positions, counts and truth values have none
    if not outputs:
        raise BadInput(
            "no gradient flows from the output to any input", where, "the operation has to be differentiable"
        )
    generator = torch.Generator().manual_seed(1)
    directions = [torch.randn(output.shape, generator=generator).to(output.dtype) for output in outputs]
    with users_code("its gradient fails", operation.place, "work on new tensors instead of in-place writes"):
        gradients = torch.autograd.grad(outputs, floats, directions, allow_unused=True)
    largest = max((float(g.abs().max()) for g in gradients if g is not None and g.numel()), default=0.0)
    zero = _ROUNDOFF * max(float(d.float().abs().max()) for d in directions)
    return math.isnan(largest) or largest > zero  # NaN where the numbers drawn are outside of a root's domain
