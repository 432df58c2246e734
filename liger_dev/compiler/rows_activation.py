"""Rows of torch's activation functions, in forms whose gradients are torch's own at every edge.

A branch that `where` does not take must stay finite, or its zero gradient becomes NaN: exponentials take min(x, 0).
"""

import math

from typing import Any

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import function
from liger_dev.compiler.lowering import pointwise
from liger_dev.compiler.lowering import result

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _silu(g: Graph, x: Value) -> Value:
    return g.mul(x, g.make("sigmoid", x))


def _gelu(state: Lowering, x: Any, approximate: str = "none") -> Term:
    t, g = state.term(x), state.graph
    v = t.value
    if approximate == "tanh":
        inner = g.mul(g.const(math.sqrt(2.0 / math.pi)), g.add(v, g.mul(g.const(0.044715), g.power(v, 3))))
        gate = g.add(g.const(1.0), state.name(g.make("tanh", inner), "tanh"))
    else:
        gate = g.add(g.const(1.0), state.name(g.make("erf", g.mul(v, g.const(math.sqrt(0.5)))), "erf"))
    return result(state, g.mul(g.mul(g.const(0.5), v), gate), [t])


def _number(state: Lowering, value: Any) -> Value:
    return as_float(state.graph, state.number(value))


def _softplus(state: Lowering, x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Term:
    """Up to the default threshold the stable form is the function to the last digit of float32: no branch."""
    t, g = state.term(x), state.graph
    b = _number(state, beta)
    scaled = g.mul(t.value, b)
    value = g.div(g.make("softplus", scaled), b)
    if threshold != 20:
        value = g.where(g.make("gt", scaled, _number(state, threshold)), t.value, value)
    return result(state, value, [t])


def _log_sigmoid(g: Graph, x: Value) -> Value:
    return g.neg(g.make("softplus", g.neg(x)))


def _mish(g: Graph, x: Value) -> Value:
    return g.mul(x, g.make("tanh", g.make("softplus", x)))


def _exponential_tail(g: Graph, x: Value, alpha: Value, rate: Value) -> Value:
    """x above 0, alpha * (exp(rate * x) - 1) below."""
    tail = g.make("expm1", g.mul(rate, g.make("clamp_max", x, g.const(0.0))))
    return g.add(g.make("relu", x), g.mul(alpha, tail))


def _elu(state: Lowering, x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Term:
    t, g = state.term(x), state.graph
    value = _exponential_tail(g, t.value, _number(state, alpha), _number(state, input_scale))
    return result(state, g.mul(_number(state, scale), value), [t])


def _selu(state: Lowering, x: Any) -> Term:
    return _elu(state, x, _SELU_ALPHA, _SELU_SCALE)


def _celu(state: Lowering, x: Any, alpha: Any = 1.0) -> Term:
    t, g = state.term(x), state.graph
    number = _number(state, alpha)
    rate = g.div(g.const(1.0), number)
    return result(state, _exponential_tail(g, t.value, number, rate), [t])


def leaky(g: Graph, x: Value, slope: Value) -> Value:
    return g.mul(x, g.where(g.make("gt", x, g.const(0.0)), g.const(1.0), as_float(g, slope)))


def _leaky_relu(state: Lowering, x: Any, slope: Any = 0.01) -> Term:
    t = state.term(x)
    return result(state, leaky(state.graph, t.value, state.number(slope)), [t])


def _prelu(state: Lowering, x: Any, weight: Any) -> Term:
    """One weight, or one a channel, which is the second dimension of `x`."""
    t, w = state.term(x), state.term(weight)
    axes = {d for d in w.dims if d}
    if axes and (len(t.dims) < 2 or t.dims[1] not in axes):
        raise state.refuse("its weight is not over the second dimension")
    return result(state, leaky(state.graph, t.value, w.value), [t, Term(w.value, (), w.dtype_of)], t.dims)


def _rrelu(
    state: Lowering, x: Any, lower: float = 0.125, upper: float = 1.0 / 3.0, training: bool = False, *_: Any
) -> Term:
    if training:
        raise state.refuse("it draws random numbers")
    return _leaky_relu(state, x, (lower + upper) / 2.0)


def _between(g: Graph, x: Value, low: Value, high: Value, low_value: Value, value: Value, high_value: Value) -> Value:
    """`value` strictly between two bounds; at and beyond them constants, which have no gradient."""
    upper = g.where(g.make("ge", x, high), high_value, value)
    return g.where(g.make("le", x, low), low_value, upper)


def _hardtanh(state: Lowering, x: Any, low: Any = -1.0, high: Any = 1.0) -> Term:
    t = state.term(x)
    a, b = _number(state, low), _number(state, high)
    return result(state, _between(state.graph, t.value, a, b, a, t.value, b), [t])


def _hardshrink(state: Lowering, x: Any, bound: Any = 0.5) -> Term:
    t, g = state.term(x), state.graph
    inside = g.make("le", g.make("abs", t.value), _number(state, bound))
    return result(state, g.where(inside, g.const(0.0), t.value), [t])


def _softshrink(state: Lowering, x: Any, bound: Any = 0.5) -> Term:
    t, g = state.term(x), state.graph
    limit = _number(state, bound)
    shrunk = g.sub(t.value, g.mul(limit, g.make("sign", t.value)))
    inside = g.make("le", g.make("abs", t.value), limit)
    return result(state, g.where(inside, g.const(0.0), shrunk), [t])


def _threshold(state: Lowering, x: Any, threshold: Any, value: Any) -> Term:
    t, g = state.term(x), state.graph
    below = g.make("le", t.value, _number(state, threshold))
    return result(state, g.where(below, _number(state, value), t.value), [t])


def _logit(state: Lowering, x: Any, eps: Any = None) -> Term:
    t, g = state.term(x), state.graph
    value = t.value
    if eps is not None:
        low = _number(state, eps)
        value = g.make("clamp_max", g.make("clamp_min", value, low), g.sub(g.const(1.0), low))
    return result(state, g.make("logit", value), [t])


def _dropout(state: Lowering, x: Any, p: float = 0.5, training: bool = True, *_: Any) -> Term:
    if training and p != 0:
        raise state.refuse("it draws random numbers", "trace it with training=False")
    return state.term(x)


ACTIVATIONS: dict[str, Row] = {
    "aten.relu.default": function("relu"),
    "aten.silu.default": pointwise(_silu),
    "aten.gelu.default": _gelu,
    "aten.softplus.default": _softplus,
    "aten.log_sigmoid.default": pointwise(_log_sigmoid),
    "aten.mish.default": pointwise(_mish),
    "aten.elu.default": _elu,
    "aten.selu.default": _selu,
    "aten.celu.default": _celu,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.prelu.default": _prelu,
    "aten._prelu_kernel.default": pointwise(leaky),
    "aten.rrelu.default": _rrelu,
    "aten.hardtanh.default": _hardtanh,
    "aten.relu6.default": lambda state, x: _hardtanh(state, x, 0.0, 6.0),
    "aten.hardsigmoid.default": function("hardsigmoid"),
    "aten.hardswish.default": function("hardswish"),
    "aten.hardshrink.default": _hardshrink,
    "aten.softshrink.default": _softshrink,
    "aten.threshold.default": _threshold,
    "aten.logit.default": _logit,
    "aten.special_logit.default": _logit,
    **{f"aten.{name}.default": _dropout for name in ("dropout", "alpha_dropout", "feature_dropout")},
}
