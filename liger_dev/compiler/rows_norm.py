"""Rows of vector norms, of what is divided by them, and of normalisations over whole groups of axes."""

import math

from typing import Any

from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import axes_of
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import SplitAxis
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import broadcast
from liger_dev.compiler.lowering import result
from liger_dev.compiler.rows_loss import MEAN
from liger_dev.compiler.rows_loss import NONE
from liger_dev.compiler.rows_loss import SUM
from liger_dev.compiler.rows_reduce import affine
from liger_dev.compiler.rows_reduce import largest
from liger_dev.compiler.rows_reduce import mean_value
from liger_dev.compiler.rows_reduce import over_dims
from liger_dev.compiler.rows_reduce import smallest
from liger_dev.compiler.rows_reduce import variance_value


def _norm_value(state: Lowering, value: Value, order: Any, over: frozenset[str]) -> Value:
    """The norm of an order over axes, with torch's gradients: 0 at a zero vector, shared at a tie of the largest."""
    g = state.graph
    if order == 2:
        return g.make("norm_root", g.sum(g.mul(value, value), over))
    if order == 0:
        return g.sum(g.where(g.make("ne", value, g.const(0.0)), g.const(1.0), g.const(0.0)), over)
    magnitude = g.make("abs", value)
    if order == 1:
        return g.sum(magnitude, over)
    if math.isinf(order):
        return largest(g, magnitude, over) if order > 0 else smallest(g, magnitude, over)
    power = as_float(g, state.number(order))
    total = g.sum(g.make("pow", magnitude, power), over)
    return g.make("pow", total, g.div(g.const(1.0), power))


def _vector_norm(state: Lowering, x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Term:
    t = state.term(x)
    over, dims = over_dims(t, dim, keepdim)
    value = state.name(_norm_value(state, t.value, 2 if order is None else order, over), "norm")
    return result(state, value, [t], dims)


def _linalg_norm(
    state: Lowering, x: Any, order: Any = None, dim: Any = None, keepdim: bool = False, **rest: Any
) -> Term:
    many = len(state.term(x).dims) if dim is None else 1 if isinstance(dim, int) else len(dim)
    if isinstance(order, str) or order is not None and many > 1:
        raise state.refuse("it is a norm of matrices")
    return _vector_norm(state, x, order, dim, keepdim, **rest)


def _cosine_similarity(state: Lowering, a: Any, b: Any, dim: int = 1, eps: Any = 1e-8) -> Term:
    """The dot product of both vectors, each divided by its norm or `eps`, whichever is larger; torch's gradient takes no
    notice of `eps`."""
    terms, g = [state.term(a), state.term(b)], state.graph
    whole = Term(terms[0].value, broadcast(state, terms))
    over, dims = over_dims(whole, dim, False)
    lengths = [g.make("at_least", _norm_value(state, t.value, 2, over), state.number(eps)) for t in terms]
    dot = state.name(g.sum(g.mul(terms[0].value, terms[1].value), over), "dot")
    return result(state, g.div(dot, g.mul(*lengths)), terms, dims)


def _cosine_embedding(state: Lowering, a: Any, b: Any, target: Any, margin: Any = 0.0, reduction: int = MEAN) -> Term:
    """1 - cos for pairs of one kind (target 1), max(cos - margin, 0) for others (-1); torch adds 1e-12 to the squares."""
    terms, g = [state.term(a), state.term(b)], state.graph
    label = state.term(target)
    over, rows = over_dims(terms[0], -1, False)
    u, v = terms[0].value, terms[1].value
    lengths = [g.add(g.sum(g.mul(x, x), over), g.const(1e-12)) for x in (u, v)]
    cosine = state.name(g.mul(g.sum(g.mul(u, v), over), g.make("rsqrt", g.mul(*lengths))), "cosine")
    zero, one = g.const(0.0), g.const(1.0)
    far = g.make("clamp_min", g.sub(cosine, state.number(margin)), zero)
    kind = as_float(g, label.value)
    loss = g.where(g.make("eq", kind, one), g.sub(one, cosine), g.where(g.make("eq", kind, g.const(-1.0)), far, zero))
    if reduction == NONE:
        return result(state, loss, terms, rows)
    axes = set(axes_of(rows))
    total = g.sum(state.name(loss, "loss"), axes)
    return result(state, total if reduction == SUM else g.div(total, g.size(axes)), terms, ())


def _pairwise_distance(
    state: Lowering, a: Any, b: Any, order: Any = 2.0, eps: Any = 1e-6, keepdim: bool = False
) -> Term:
    terms, g = [state.term(a), state.term(b)], state.graph
    difference = state.name(g.add(g.sub(terms[0].value, terms[1].value), state.number(eps)), "difference")
    over, dims = over_dims(Term(difference, broadcast(state, terms)), -1, keepdim)
    return result(state, _norm_value(state, difference, order, over), terms, dims)


def _normalised(state: Lowering, t: Term, over: frozenset[str], weight: Any, bias: Any, eps: Any) -> Term:
    """(x - mean) / sqrt(var + eps) over axes, then weight and bias of the channels, the second dimension."""
    g = state.graph
    variance = variance_value(state, t.value, over, 0)
    centered = g.sub(t.value, mean_value(state, t.value, over))
    rstd = state.name(g.make("rsqrt", g.add(variance, state.number(eps))), "rstd")
    terms = [t]
    value = affine(state, state.name(g.mul(centered, rstd), "x_hat"), terms, weight, bias)
    return result(state, value, [t], t.dims)


def _group_norm(
    state: Lowering, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-5, *_: Any
) -> Term:
    t = state.term(x)
    channels, rest = t.dims[1], axes_of(t.dims[2:])
    if groups == 1:
        return _normalised(state, t, frozenset(axes_of(t.dims[1:])), weight, bias, eps)
    if len(channels) == 1 and state.extent(channels) > groups:
        raise SplitAxis(channels[0], (groups, state.extent(channels) // groups), (True, False))
    if len(channels) == 2 and state.hints[channels[0]] != groups:
        raise state.refuse(f"{groups} groups of channels that are split already")
    return _normalised(state, t, frozenset((*channels[1:], *rest)), weight, bias, eps)


def _instance_norm(
    state: Lowering,
    x: Any,
    weight: Any = None,
    bias: Any = None,
    mean: Any = None,
    var: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: Any = 1e-5,
    *_: Any,
) -> Term:
    t = state.term(x)
    if mean is not None or var is not None or not use_input_stats:
        raise state.refuse("it keeps running statistics", "trace it without them")
    return _normalised(state, t, frozenset(axes_of(t.dims[2:])), weight, bias, eps)


def _batch_norm(
    state: Lowering,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: Any,
    *_: Any,
) -> Term:
    """With the statistics that it is given, or without any of its own: those of all samples, a channel."""
    t, g = state.term(x), state.graph
    if training and (mean is not None or var is not None):
        raise state.refuse("it updates running statistics", "give it training=False, or no statistics")
    if training:
        return _normalised(state, t, frozenset(axes_of((*t.dims[:1], *t.dims[2:]))), weight, bias, eps)
    value = g.sub(t.value, state.term(mean).value)
    value = g.mul(value, state.name(g.make("rsqrt", g.add(state.term(var).value, state.number(eps))), "rstd"))
    return result(state, affine(state, value, [t], weight, bias), [t], t.dims)


NORMS: dict[str, Row] = {
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.linalg_norm.default": _linalg_norm,
    **{f"aten.norm.{kind}": _vector_norm for kind in ("Scalar", "ScalarOpt_dim")},
    "aten.cosine_similarity.default": _cosine_similarity,
    "aten.cosine_embedding_loss.default": _cosine_embedding,
    "aten.pairwise_distance.default": _pairwise_distance,
    "aten.group_norm.default": _group_norm,
    "aten.instance_norm.default": _instance_norm,
    "aten.batch_norm.default": _batch_norm,
}
