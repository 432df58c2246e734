"""Rows that read an axis at other positions: shifts, rolls, padding, differences of neighbours, the opposite order."""

from typing import Any

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import dtype_of
from liger_dev.compiler.lowering import result
from liger_dev.compiler.moves import moved
from liger_dev.compiler.moves import rolled
from liger_dev.compiler.moves import shifted


def axis_at(state: Lowering, t: Term, dim: int) -> tuple[int, str]:
    """The position of a dimension, and its one axis."""
    position = dim % len(t.dims) if t.dims else 0
    if not t.dims or len(t.dims[position]) != 1:
        raise state.refuse("it moves along a dimension of merged or no axes")
    return position, t.dims[position][0]


def replaced(t: Term, position: int, axis: str, value: Value) -> Term:
    return Term(value, (*t.dims[:position], (axis,), *t.dims[position + 1 :]), t.dtype_of)


def shortened(state: Lowering, t: Term, position: int, first: int, last: int) -> Term:
    """A dimension without so many of its first and of its last elements."""
    axis = t.dims[position][0]
    own = state.longer_axis(axis, -first - last)
    return replaced(t, position, own, moved(state.graph, t.value, axis, Slice((own,), first, outside="zero")))


def _flip(state: Lowering, x: Any, dims: Any) -> Term:
    t = state.term(x)
    value = t.value
    for position in dims:
        for axis in t.dims[position]:
            value = moved(state.graph, value, axis, Slice((axis,), -1, (axis,), -1))
    return Term(value, t.dims, t.dtype_of)


def _roll(state: Lowering, x: Any, shifts: Any, dims: Any = ()) -> Term:
    t = state.term(x)
    shifts, dims = ([v] if isinstance(v, int) else list(v) for v in (shifts, dims))
    if len(shifts) != len(dims):
        raise state.refuse("it rolls the tensor as one run of elements", "give it dims")
    value = t.value
    for by, dim in zip(shifts, dims):
        if not isinstance(by, int):
            raise state.refuse("it rolls by a number that depends on a size")
        value = rolled(state.graph, value, axis_at(state, t, dim)[1], -by)
    return result(state, value, [t], t.dims)


def _constant_pad(state: Lowering, x: Any, pad: Any, value: Any = 0.0) -> Term:
    t, g = state.term(x), state.graph
    if not all(isinstance(n, int) for n in pad):
        raise state.refuse("it pads by a number that depends on a size")
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        if not before and not after:
            continue
        position, axis = axis_at(state, t, -1 - i)
        into = state.longer_axis(axis, before + after)
        fill = {"int": int, "bool": bool}.get(t.value.dtype, float)(value or 0)  # torch keeps all of them as floats
        t = replaced(t, position, into, shifted(g, t.value, axis, into, -before, state.number(fill)))
    return result(state, t.value, [t], t.dims)


def _pad(state: Lowering, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Term:
    if mode != "constant":
        raise state.refuse(f"it pads with {mode} values", "write it with torch.cat or torch.roll")
    return _constant_pad(state, x, pad, value)


def _diff(state: Lowering, x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Term:
    t = state.term(x)
    if n != 1 or prepend is not None or append is not None:
        raise state.refuse("it is no plain difference of neighbours")
    position, _ = axis_at(state, t, dim)
    later, earlier = shortened(state, t, position, 1, 0), shortened(state, t, position, 0, 1)
    return result(state, state.graph.sub(later.value, earlier.value), [later], later.dims)


def overlays(state: Lowering, terms: list[Term], position: int) -> bool:
    """Whether a concatenation is a tensor and a known number of elements beside it: a shift, written with cat."""
    axes = [t.dims[position] for t in terms]
    moving = [dim for dim in axes if not _is_static(state, dim)]
    differ = [t for t, dim in zip(terms, axes) if _is_static(state, dim) and t.value.axes & set(dim)]
    return (
        len(moving) == 1
        and not differ
        and any(_is_static(state, dim) for dim in axes)
        and (moving[0][0] in state.graph.lengths or any(t.value.op == "const" for t in terms))
    )


def _is_static(state: Lowering, dim: tuple[str, ...]) -> bool:
    return not dim or len(dim) == 1 and state.graph.sizes[dim[0]].isdigit()


def overlaid(state: Lowering, terms: list[Term], position: int) -> Term:
    """A concatenation of one tensor with a known number of elements on its sides, as a shift with what is outside."""
    g = state.graph
    lengths = [state.extent(t.dims[position]) for t in terms]
    main = next(i for i, t in enumerate(terms) if not _is_static(state, t.dims[position]))
    (axis,) = terms[main].dims[position]
    into = state.longer_axis(axis, sum(lengths) - lengths[main])
    start, end = sum(lengths[:main]), sum(lengths[main + 1 :])
    value = shifted(g, terms[main].value, axis, into, -start)
    index = g.make("index", axes=frozenset({into}), dtype="int", axis=into)
    before = 0
    for i, (t, length) in enumerate(zip(terms, lengths)):
        if i == main:
            continue
        at = g.const(before) if i < main else g.sub(g.size([into]), g.const(end))
        if length != 1 and (i > main or t.value.axes & set(t.dims[position])):
            raise state.refuse("several elements that differ are put beside a tensor")
        if not (t.value.op == "const" and t.value.attr("value") == 0):
            value = g.where(_between(g, index, at, length), t.value, value)
        before, end = before + length, end - length if i > main else end
    dims = next(t.dims for t in terms if t is terms[main])
    return Term(value, (*dims[:position], (into,), *dims[position + 1 :]), dtype_of(state, terms))


def _between(g: Graph, index: Value, start: Value, length: int) -> Value:
    if length == 1:
        return g.make("eq", index, start)
    below = g.make("lt", index, g.add(start, g.const(length)))
    return (
        below if start.op == "const" and start.attr("value") == 0 else g.make("and", g.make("ge", index, start), below)
    )


MOVES: dict[str, Row] = {
    "aten.flip.default": _flip,
    "aten.roll.default": _roll,
    "aten.pad.default": _pad,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.diff.default": _diff,
}
