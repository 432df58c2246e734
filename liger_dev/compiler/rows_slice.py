"""Rows that take a part of a tensor: slices, elements, splits and halves."""

from typing import Any

import torch

from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import hint
from liger_dev.compiler.lowering import result
from liger_dev.compiler.rows_move import replaced
from liger_dev.compiler.rows_move import shortened


def _slice(state: Lowering, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Term:
    t = state.term(x)
    position = dim % len(t.dims)
    start, end = (_from_end(x.meta["val"].shape[position], given) for given in (start, end))
    extent = state.extent(t.dims[position])
    low = border(start, 0, extent)
    high = border(end, extent, extent)
    if (low, high, step) == (0, extent, 1):
        return t
    if step == 1 and len(t.dims[position]) == 1 and all(n is None or isinstance(n, int) for n in (start, end)):
        return _counted(state, t, position, start or 0, end, low, high)
    return _sliced(state, t, position, low, -(-(high - low) // step), step)


def sliced(state: Lowering, x: Any, dim: int, start: Any, end: Any = None, step: int = 1) -> Term:
    """`x[start:end:step]` along a dimension."""
    return _slice(state, x, dim, start, end, step)


def _from_end(size: Any, given: Any) -> Any:
    """`x.shape[-1] - 1` as the border -1; other borders as they are."""
    if not isinstance(given, torch.fx.Node) or isinstance(size, int):
        return given
    number = _fixed_number(given.meta["val"] - size)
    return given if number is None or number >= 0 else number


def _fixed_number(size: Any) -> int | None:
    """A difference of sizes that is the same number whatever they are."""
    if isinstance(size, int):
        return size
    return int(size.node.expr) if size.node.expr.is_number else None


def _narrow(state: Lowering, x: Any, dim: int, start: Any, length: Any) -> Term:
    if isinstance(start, int) and isinstance(length, int):
        return _slice(state, x, dim, start, start + length)
    low, size = (n if isinstance(n, int) else n.meta["val"] for n in (start, length))
    t = state.term(x)
    rest = _fixed_number(x.meta["val"].shape[dim] - low - size)
    if isinstance(start, int) and rest is not None:
        return _slice(state, x, dim, start, -rest if rest else None)
    return _sliced(state, t, dim % len(t.dims), hint(low), hint(size), 1)


def _counted(state: Lowering, t: Term, position: int, start: int, end: int | None, low: int, high: int) -> Term:
    """A slice whose borders are numbers, counted from either end: a number of elements, or all but a number of them."""
    axis = t.dims[position][0]
    extent = state.hints[axis]
    piece = _piece_of(state, t.value, axis, low, high)
    if piece is not None:
        return replaced(t, position, piece.axes[0], state.slicer.take(t.value, axis, piece))
    from_start, to_end = start >= 0, end is None or end < 0 or end >= extent
    if state.graph.sizes[axis].isdigit() or from_start != to_end:
        if high - low == 1:
            piece = Slice((), low) if from_start else Slice((), low - extent, (axis,))
            left = (*t.dims[:position], (), *t.dims[position + 1 :])
            return Term(state.slicer.take(t.value, axis, piece), left, t.dtype_of)
        own = state.part_axis(axis, high - low, True)
        piece = Slice((own,), low) if from_start else Slice((own,), low - extent, (axis,))
        return replaced(t, position, own, state.slicer.take(t.value, axis, piece))
    elif from_start and _begins_apart(state, extent, low):
        return _sliced(state, t, position, low, high - low, 1, fixed_start=True)
    elif from_start:
        return shortened(state, t, position, low, extent - high)
    return _sliced(state, t, position, low, high - low, 1)


def _begins_apart(state: Lowering, extent: int, first: int) -> bool:
    """Whether the first elements of a dimension, so many, are taken for themselves somewhere: the rest is the other piece."""
    for node in state.traced.graph.nodes:
        if first > 1 and str(node.target) == "aten.slice.Tensor":
            x, dim, start, end, *step = [*node.args, 0, 0, None][: max(len(node.args), 4)]
            if (start in (0, None), end, step in ([], [1])) == (True, first, True):
                if hint(x.meta["val"].shape[dim]) == extent:
                    return True
    return False


def _piece_of(state: Lowering, value: Value, axis: str, low: int, high: int) -> Slice | None:
    """The piece of a concatenation along an axis that a slice takes, if it takes one."""
    for cat in state.graph.walk([value]):
        pieces: tuple[Slice, ...] = cat.attr("slices") if cat.op == "cat" and cat.attr("into") == (axis,) else ()
        for piece in pieces:
            start = piece.first + sum(state.hints[other] for other in piece.after)
            if len(piece.axes) == 1 and (start, start + state.hints[piece.axes[0]], 1) == (low, high, piece.step):
                return piece
    return None


def border(given: Any, default: int, extent: int) -> int:
    """Where a slice begins or ends, counted from the front and inside of its dimension."""
    if given is None:
        return default
    number = given if isinstance(given, int) else hint(given.meta["val"])
    return max(0, min(number + extent if number < 0 else number, extent))


def _sliced(
    state: Lowering,
    t: Term,
    position: int,
    low: int,
    length: int,
    step: int,
    fixed: bool = False,
    fixed_start: bool = False,
) -> Term:
    """Elements low, low + step, … of one dimension; their number, and where they begin, may be `fixed` by the reference."""
    dim = t.dims[position]
    if len(dim) == 2 and step == state.hints[dim[1]] and low < step:
        return element(
            state,
            Term(t.value, (*t.dims[:position], dim[:1], dim[1:], *t.dims[position + 1 :]), t.dtype_of),
            position + 1,
            low,
        )
    if len(dim) != 1:
        raise state.refuse("a slice of a dimension of merged or no axes")
    axis = dim[0]
    if length == 1 and state.graph.sizes[axis].isdigit():
        left = (*t.dims[:position], (), *t.dims[position + 1 :])
        return Term(state.slicer.take(t.value, axis, Slice((), low)), left, t.dtype_of)
    own = state.part_axis(axis, length, fixed)
    if step > 1 or fixed_start:
        piece = Slice((own,), low, (), step)
    else:
        piece = Slice((own,), *state.start_of(axis, low, own))
    value = state.slicer.take(t.value, axis, piece)
    return Term(value, (*t.dims[:position], (own,), *t.dims[position + 1 :]), t.dtype_of)


def _select(state: Lowering, x: Any, dim: int, index: int) -> Term:
    t = state.term(x)
    return element(state, t, dim % len(t.dims), index)


def element(state: Lowering, t: Term, position: int, index: int) -> Term:
    """One element of one dimension, which disappears."""
    dim = t.dims[position]
    left = (*t.dims[:position], *t.dims[position + 1 :])
    if not dim:
        return Term(t.value, left, t.dtype_of)
    if len(dim) != 1:
        raise state.refuse("an element of a dimension of merged axes")
    piece = Slice((), index, dim if index < 0 else ())
    return Term(state.slicer.take(t.value, dim[0], piece), left, t.dtype_of)


def _split(state: Lowering, x: Any, sizes: Any, dim: int = 0) -> tuple[Term, ...]:
    t = state.term(x)
    position = dim % len(t.dims)
    given = [value.shape[position] for value in state.node.meta["val"]]
    lengths = [hint(size) for size in given]
    counted = isinstance(sizes, list | tuple) and len(set(lengths)) > 1
    pieces = []
    for i, length in enumerate(lengths):
        fixed = counted and isinstance(given[i], int)
        fixed_start = counted and all(isinstance(size, int) for size in given[:i])
        pieces.append(_sliced(state, t, position, sum(lengths[:i]), length, 1, fixed, fixed_start))
    return tuple(pieces)


def _glu(state: Lowering, x: Any, dim: int = -1) -> Term:
    """The first half times the sigmoid of the second."""
    t, g = state.term(x), state.graph
    position = dim % len(t.dims)
    half = state.extent(t.dims[position]) // 2
    first, second = (_sliced(state, t, position, low, half, 1) for low in (0, half))
    return result(state, g.mul(first.value, g.make("sigmoid", second.value)), [first, second])


def _unbind(state: Lowering, x: Any, dim: int = 0) -> tuple[Term, ...]:
    t = state.term(x)
    position = dim % len(t.dims)
    return tuple(element(state, t, position, i) for i in range(state.extent(t.dims[position])))


SLICES: dict[str, Row] = {
    "aten.slice.Tensor": _slice,
    "aten.narrow.default": _narrow,
    "aten.select.int": _select,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.split.sizes": _split,
    "aten.chunk.default": _split,
    "aten.unbind.int": _unbind,
    "aten.glu.default": _glu,
}
