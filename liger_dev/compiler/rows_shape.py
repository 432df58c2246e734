"""Rows that move no numbers: casts, views, permutations and sizes."""

from typing import Any

import torch

from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import rounded


def _cast(state: Lowering, x: Any, dtype: Any = None, *rest: Any, **kwargs: Any) -> Term:
    t = state.term(x)
    dtype = dtype or kwargs.get("dtype") or state.node.meta["val"].dtype
    if t.value.dtype == "float" and dtype == torch.bfloat16:
        if state.node.args[0].meta["val"].dtype == torch.bfloat16:
            return t
        primary = next(tensor.name for tensor in state.reference.tensors if tensor.dtype == "float")
        owner = state.locals.get(state.source.cast_like(state.node))
        like = owner.dtype_of if owner and owner.dtype_of else frozenset({primary})
        return Term(rounded(state, t.value, like), t.dims, like)
    if dtype in (torch.float32, torch.float64) or t.value.dtype == "float" and dtype.is_floating_point:
        value = t.value if t.value.dtype == "float" else state.graph.make("float", t.value)
        return Term(value, t.dims)
    if dtype == state.node.args[0].meta["val"].dtype:
        return t
    raise state.refuse(f"a cast to {dtype}")


def _reshape(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    """view, expand, unsqueeze, squeeze: the axes stay, in order; a split or merge is refused."""
    t = state.term(x)
    dims = tuple(state.axis(size) for size in state.shape(state.node))
    ordered = [axis for axis in dims if axis]
    if [axis for axis in ordered if axis in t.dims] != [axis for axis in t.dims if axis]:
        raise state.refuse("axes are split, merged or reordered by a view")
    return Term(t.value, dims, t.dtype_of)


def _permute(state: Lowering, x: Any, order: Any) -> Term:
    t = state.term(x)
    return Term(t.value, tuple(t.dims[i] for i in order), t.dtype_of)


def _transpose(state: Lowering, x: Any, a: int, b: int) -> Term:
    rank = len(state.term(x).dims)
    order = list(range(rank))
    order[a % rank], order[b % rank] = order[b % rank], order[a % rank]
    return _permute(state, x, order)


def _same(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    return state.term(x)


def _detach(state: Lowering, x: Any) -> Term:
    t = state.term(x)
    return Term(state.graph.make("detach", t.value), t.dims, t.dtype_of)


def _sym_size(state: Lowering, x: Any, dim: int) -> Value:
    axis = state.term(x).dims[dim]
    return state.graph.size([axis]) if axis else state.graph.const(1)


SHAPES: dict[str, Row] = {
    "aten.to.dtype": _cast,
    "aten._to_copy.default": _cast,
    "aten.type_as.default": lambda state, x, other: _cast(state, x, other.meta["val"].dtype),
    **{
        f"aten.{name}.default": _reshape
        for name in ("view", "reshape", "unsqueeze", "expand", "squeeze", "_unsafe_view")
    },
    "aten.squeeze.dim": _reshape,
    "aten.expand_as.default": _reshape,
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.contiguous.default": _same,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    "aten.detach.default": _detach,
    "aten.sym_size.int": _sym_size,
}
