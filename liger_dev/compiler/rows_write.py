"""Rows of writes into parts of a tensor: `out[..., ::2] = a`, `out[:, 1:] = b`, `x[:, 0] = 0`."""

from typing import Any

import torch

from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.moves import moved
from liger_dev.compiler.moves import related
from liger_dev.compiler.rows_cast import CASTS
from liger_dev.compiler.rows_move import axis_at
from liger_dev.compiler.rows_shape import concatenated
from liger_dev.compiler.rows_shape import stacked
from liger_dev.compiler.rows_slice import border
from liger_dev.compiler.rows_slice import sliced


def _copy(state: Lowering, _: Any, source: Any) -> Term:
    """A tensor in the dtype of what it is written over, and broadcast where it is used."""
    own = state.node.meta["val"].dtype
    if isinstance(source, torch.fx.Node) and source.meta["val"].dtype != own:
        t: Term = CASTS["aten.to.dtype"](state, source)
    else:
        t = state.term(source)
    value = as_float(state.graph, t.value) if own.is_floating_point else t.value
    return Term(value, t.dims, t.dtype_of)


def _slice_scatter(
    state: Lowering, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Term:
    """A tensor with a part of a dimension replaced: parts side by side, or a choice by the position."""
    t, s = state.term(x), state.term(source)
    position = dim % len(t.dims)
    s = Term(s.value, ((),) * (len(t.dims) - len(s.dims)) + s.dims, s.dtype_of)
    extent = state.extent(t.dims[position])
    low, high = border(start, 0, extent), border(end, extent, extent)
    if (low, high, step) == (0, extent, 1):
        return _with_dims(state, s, t)
    if step > 1:
        return _interleaved(state, x, t, s, position, low, step)
    own, axes = s.dims[position], t.dims[position]
    if all(n is None or isinstance(n, int) for n in (start, end)):
        if own == ():
            return _between(state, t, s, position, start or 0, end)
        if len(own) == len(axes) == 1 and t.value.op != "const" and related(state.graph, own[0], axes[0]):
            there = moved(state.graph, s.value, own[0], Slice(axes, -low, outside="zero"))
            return _between(state, t, Term(there, t.dims, s.dtype_of), position, start or 0, end)
    parts = [sliced(state, x, position, 0, start)] if low else []
    parts.append(s)
    parts += [sliced(state, x, position, end)] if high < extent else []
    return _typed(concatenated(state, parts, position), t, s)


def _interleaved(state: Lowering, x: Any, t: Term, s: Term, position: int, first: int, step: int) -> Term:
    """Every `step`-th element replaced, from `first` on."""
    if first >= step or state.extent(t.dims[position]) % step:
        raise state.refuse("it writes every other element, but not from the first ones on")
    lanes = [s if i == first else sliced(state, x, position, i, None, step) for i in range(step)]
    joined = stacked(state, lanes, position + 1)
    pair = (*joined.dims[position], *joined.dims[position + 1])
    dims = (*joined.dims[:position], pair, *joined.dims[position + 2 :])
    return _typed(Term(joined.value, dims), t, s)


def _between(state: Lowering, t: Term, s: Term, position: int, start: int, end: int | None) -> Term:
    """One tensor at a dimension's positions from `start` to `end`, another one elsewhere."""
    g = state.graph
    _, axis = axis_at(state, t, position)
    index = g.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
    conditions = [g.make("ge", index, _counted(state, axis, start))] if start else []
    conditions += [g.make("lt", index, _counted(state, axis, end))] if end is not None and end < 2**62 else []
    inside = g.make("and", *conditions) if len(conditions) == 2 else conditions[0]
    return _typed(Term(g.where(inside, s.value, t.value), t.dims), t, s)


def _counted(state: Lowering, axis: str, number: int) -> Value:
    g = state.graph
    return g.const(number) if number >= 0 else g.sub(g.size([axis]), g.const(-number))


def _select_scatter(state: Lowering, x: Any, source: Any, dim: int, index: int) -> Term:
    """A tensor with the elements at one position of a dimension replaced."""
    g, t, s = state.graph, state.term(x), state.term(source)
    position, axis = axis_at(state, t, dim)
    own = g.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
    chosen = g.make("eq", own, _counted(state, axis, index))
    return _typed(Term(g.where(chosen, s.value, t.value), t.dims), t, s)


def _with_dims(state: Lowering, s: Term, t: Term) -> Term:
    """`s` broadcast to the dimensions of `t`."""
    return _typed(Term(s.value, tuple(own or other for own, other in zip(s.dims, t.dims))), t, s)


def _typed(written: Term, t: Term, s: Term) -> Term:
    return Term(written.value, written.dims, t.dtype_of or s.dtype_of)


WRITES: dict[str, Row] = {
    "aten.copy.default": _copy,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select_scatter.default": _select_scatter,
}
