"""Rows of torch's losses: the element-wise loss, then its mean or sum over all elements."""

import math

from typing import Any

from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import axes_of
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import broadcast
from liger_dev.compiler.lowering import result

NONE, MEAN, SUM = 0, 1, 2


def reduced(state: Lowering, value: Value, terms: list[Term], reduction: int) -> Term:
    """An element-wise loss as torch's argument `reduction` wants it."""
    if reduction == NONE:
        return result(state, value, terms)
    g = state.graph
    axes = set(axes_of(broadcast(state, terms)))
    total = g.sum(state.name(value, "loss"), axes)
    return result(state, total if reduction == SUM else g.div(total, g.size(axes)), terms, ())


def _pair(state: Lowering, *args: Any) -> tuple[list[Term], list[Value]]:
    terms = [state.term(arg) for arg in args]
    return terms, [as_float(state.graph, t.value) for t in terms]


def _difference(state: Lowering, x: Any, target: Any) -> tuple[list[Term], Value]:
    terms, (a, b) = _pair(state, x, target)
    return terms, state.name(state.graph.sub(a, b), "difference")


def _mse(state: Lowering, x: Any, target: Any, reduction: int = MEAN) -> Term:
    terms, difference = _difference(state, x, target)
    return reduced(state, state.graph.mul(difference, difference), terms, reduction)


def _l1(state: Lowering, x: Any, target: Any, reduction: int = MEAN) -> Term:
    terms, difference = _difference(state, x, target)
    return reduced(state, state.graph.make("abs", difference), terms, reduction)


def _smooth_l1(state: Lowering, x: Any, target: Any, reduction: int = MEAN, beta: Any = 1.0) -> Term:
    if beta == 0:
        return _l1(state, x, target, reduction)
    g, half, bound = state.graph, state.graph.const(0.5), as_float(state.graph, state.number(beta))
    terms, difference = _difference(state, x, target)
    size = g.make("abs", difference)
    near = g.div(g.mul(half, g.mul(difference, difference)), bound)
    value = g.where(g.make("lt", size, bound), near, g.sub(size, g.mul(half, bound)))
    return reduced(state, value, terms, reduction)


def _huber(state: Lowering, x: Any, target: Any, reduction: int = MEAN, delta: Any = 1.0) -> Term:
    g, half, bound = state.graph, state.graph.const(0.5), as_float(state.graph, state.number(delta))
    terms, difference = _difference(state, x, target)
    size = g.make("abs", difference)
    near = g.mul(half, g.mul(difference, difference))
    far = g.mul(bound, g.sub(size, g.mul(half, bound)))
    return reduced(state, g.where(g.make("le", size, bound), near, far), terms, reduction)


def _weighted(state: Lowering, value: Value, terms: list[Term], weight: Any) -> Value:
    if weight is None:
        return value
    terms.append(state.term(weight))
    return state.graph.mul(value, terms[-1].value)


def _bce(state: Lowering, x: Any, target: Any, weight: Any = None, reduction: int = MEAN) -> Term:
    terms, values = _pair(state, x, target)
    value = state.graph.make("binary_cross_entropy", *values)
    return reduced(state, _weighted(state, value, terms, weight), terms, reduction)


def _bce_with_logits(
    state: Lowering, x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> Term:
    """(1 - t) * x + softplus(-x); with a weight p of positives (1 - t) * x + (1 + (p - 1) * t) * softplus(-x).

    torch computes it in place of 1 - t, so it has the dtype of the target."""
    terms, (v, t) = _pair(state, x, target)
    terms[0] = Term(terms[0].value, terms[0].dims)
    g, one = state.graph, state.graph.const(1.0)
    if pos_weight is None:
        value = g.make("binary_cross_entropy_with_logits", v, t)
    else:
        terms.append(state.term(pos_weight))
        factor = g.add(one, g.mul(g.sub(terms[-1].value, one), t))
        value = g.add(g.mul(g.sub(one, t), v), g.mul(factor, g.make("softplus", g.neg(v))))
    loss = reduced(state, _weighted(state, value, terms, weight), terms, reduction)
    return Term(loss.value, loss.dims, terms[1].dtype_of)


def _kl_div(state: Lowering, x: Any, target: Any, reduction: int = MEAN, log_target: bool = False) -> Term:
    terms, (v, t) = _pair(state, x, target)
    g = state.graph
    value = g.mul(g.make("exp", t), g.sub(t, v)) if log_target else g.sub(g.make("xlogy", t, t), g.mul(t, v))
    return reduced(state, value, terms, reduction)


def _poisson_nll(
    state: Lowering,
    x: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: Any = 1e-8,
    reduction: int = MEAN,
) -> Term:
    terms, (v, t) = _pair(state, x, target)
    g = state.graph
    if log_input:
        value = g.sub(g.make("exp", v), g.mul(t, v))
    else:
        value = g.sub(v, g.mul(t, g.make("log", g.add(v, state.number(eps)))))
    if full:
        tail = g.mul(g.const(0.5), g.make("log", g.mul(g.const(2.0 * math.pi), t)))
        stirling = g.add(g.sub(g.mul(t, g.make("log", t)), t), tail)
        value = g.add(value, g.where(g.make("le", t, g.const(1.0)), g.const(0.0), stirling))
    return reduced(state, value, terms, reduction)


def _soft_margin(state: Lowering, x: Any, target: Any, reduction: int = MEAN) -> Term:
    terms, (v, t) = _pair(state, x, target)
    g = state.graph
    return reduced(state, g.make("softplus", g.neg(g.mul(t, v))), terms, reduction)


def _hinge_embedding(state: Lowering, x: Any, target: Any, margin: Any = 1.0, reduction: int = MEAN) -> Term:
    terms, (v, t) = _pair(state, x, target)
    g, zero = state.graph, state.graph.const(0.0)
    hinge = g.make("clamp_min", g.sub(state.number(margin), v), zero)
    others = g.where(g.make("ne", t, g.const(1.0)), hinge, zero)
    own = g.where(g.make("ne", t, g.const(-1.0)), v, zero)
    return reduced(state, g.add(others, own), terms, reduction)


def _margin_ranking(state: Lowering, a: Any, b: Any, target: Any, margin: Any = 0.0, reduction: int = MEAN) -> Term:
    terms, (u, v, t) = _pair(state, a, b, target)
    g = state.graph
    short = g.sub(state.number(margin), g.mul(t, g.sub(u, v)))
    return reduced(state, g.make("clamp_min", short, g.const(0.0)), terms, reduction)


def _broadcast_tensors(state: Lowering, tensors: Any) -> tuple[Term, ...]:
    terms = [state.term(tensor) for tensor in tensors]
    dims = broadcast(state, terms)
    return tuple(Term(t.value, dims, t.dtype_of) for t in terms)


LOSSES: dict[str, Row] = {
    "aten.mse_loss.default": _mse,
    "aten.l1_loss.default": _l1,
    "aten.smooth_l1_loss.default": _smooth_l1,
    "aten.huber_loss.default": _huber,
    "aten.binary_cross_entropy.default": _bce,
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.kl_div.default": _kl_div,
    "aten.poisson_nll_loss.default": _poisson_nll,
    "aten.soft_margin_loss.default": _soft_margin,
    "aten.hinge_embedding_loss.default": _hinge_embedding,
    "aten.margin_ranking_loss.default": _margin_ranking,
    "aten.broadcast_tensors.default": _broadcast_tensors,
}
