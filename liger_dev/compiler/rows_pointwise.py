"""Rows of pointwise operations: what each ATen function of elements is in the graph."""

import math

from typing import Any

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import operation
from liger_dev.compiler.lowering import pointwise
from liger_dev.compiler.lowering import result
from liger_dev.compiler.lowering import scaled


def _power(state: Lowering, base: Any, exponent: Any) -> Term:
    t, g = state.term(base), state.graph
    if isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= 8:
        return result(state, g.power(t.value, int(exponent)), [t])
    if exponent in (0.5, -0.5):
        return result(state, g.make("sqrt" if exponent > 0 else "rsqrt", t.value), [t])
    power = state.term(exponent)
    return result(state, g.make("pow", t.value, power.value), [t, power])


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


def _clamp(state: Lowering, x: Any, low: Any = None, high: Any = None) -> Term:
    t, g = state.term(x), state.graph
    value = t.value
    if low is not None:
        value = g.make("clamp_min", value, state.term(low).value)
    if high is not None:
        value = g.make("clamp_max", value, state.term(high).value)
    return result(state, value, [t])


_softplus = pointwise(
    lambda g, x: g.add(g.make("clamp_min", x, g.const(0.0)), g.make("log1p", g.make("exp", g.neg(g.make("abs", x)))))
)

POINTWISE: dict[str, Row] = {
    "aten.add.Tensor": scaled(Graph.add),
    "aten.add.Scalar": scaled(Graph.add),
    "aten.sub.Tensor": scaled(Graph.sub),
    "aten.sub.Scalar": scaled(Graph.sub),
    "aten.rsub.Scalar": pointwise(lambda g, a, b: g.sub(b, a)),
    "aten.mul.Tensor": pointwise(Graph.mul),
    "aten.mul.Scalar": pointwise(Graph.mul),
    "aten.div.Tensor": pointwise(Graph.div),
    "aten.div.Scalar": pointwise(Graph.div),
    "aten.neg.default": pointwise(Graph.neg),
    "aten.reciprocal.default": pointwise(lambda g, x: g.div(g.const(1.0), x)),
    "aten.square.default": pointwise(lambda g, x: g.mul(x, x)),
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Tensor_Tensor": operation("pow"),
    **{f"aten.{name}.default": operation(name) for name in ("abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt")},
    **{f"aten.{name}.default": operation(name) for name in ("sigmoid", "tanh", "erf", "sin", "cos", "relu", "sign")},
    **{f"aten.{name}.default": operation(name) for name in ("maximum", "minimum")},
    **{
        f"aten.{name}.{kind}": operation(name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for kind in ("Tensor", "Scalar")
    },
    "aten.logical_and.default": operation("and"),
    "aten.logical_or.default": operation("or"),
    "aten.logical_not.default": operation("not"),
    "aten.where.self": pointwise(Graph.where),
    "aten.where.ScalarOther": pointwise(Graph.where),
    "aten.where.ScalarSelf": pointwise(Graph.where),
    "aten.silu.default": pointwise(_silu),
    "aten.gelu.default": _gelu,
    "aten.softplus.default": _softplus,
    "aten.clamp.default": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": lambda state, x, high: _clamp(state, x, None, high),
}
