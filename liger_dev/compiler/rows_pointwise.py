"""Rows of pointwise arithmetic, comparisons and choices: what each ATen function of elements is in the graph."""

import math

from collections.abc import Callable
from typing import Any

import torch

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import function
from liger_dev.compiler.lowering import operation
from liger_dev.compiler.lowering import pointwise
from liger_dev.compiler.lowering import result
from liger_dev.compiler.lowering import scaled
from liger_dev.compiler.lowering import truth
from liger_dev.compiler.rows_activation import ACTIVATIONS
from liger_dev.compiler.rows_constant import CONSTANTS
from liger_dev.compiler.rows_loss import LOSSES
from liger_dev.compiler.rows_norm import NORMS


def _power(state: Lowering, base: Any, exponent: Any) -> Term:
    t, g = state.term(base), state.graph
    if isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= 8:
        return result(state, g.power(t.value, int(exponent)), [t])
    value = as_float(g, t.value)
    if exponent in (0.5, -0.5):
        return result(state, g.make("sqrt" if exponent > 0 else "rsqrt", value), [t])
    power = state.term(exponent)
    return result(state, g.make("pow", value, as_float(g, power.value)), [t, power])


def _power_of_number(state: Lowering, base: Any, exponent: Any) -> Term:
    t, g = state.term(exponent), state.graph
    if base == 2:
        return result(state, g.make("exp2", as_float(g, t.value)), [t])
    return result(state, g.make("pow", as_float(g, state.number(base)), as_float(g, t.value)), [t])


def _clamp(state: Lowering, x: Any, low: Any = None, high: Any = None) -> Term:
    terms, g = [state.term(x)], state.graph
    value = terms[0].value
    if isinstance(low, torch.fx.Node) and isinstance(high, torch.fx.Node):
        terms += [state.term(low), state.term(high)]
        return result(state, g.make("clamp", *(t.value for t in terms)), terms)
    for name, bound in (("clamp_min", low), ("clamp_max", high)):
        if bound is not None:
            terms.append(state.term(bound))
            limit = terms[-1].value
            value = g.make(name, value, as_float(g, limit) if value.dtype == "float" else limit)
    return result(state, value, terms)


def _add(g: Graph, a: Value, b: Value) -> Value:
    return g.make("or", a, b) if a.dtype == b.dtype == "bool" else g.add(a, b)


def _mul(g: Graph, a: Value, b: Value) -> Value:
    return g.make("and", a, b) if a.dtype == b.dtype == "bool" else g.mul(a, b)


def _div(g: Graph, a: Value, b: Value) -> Value:
    return g.div(a if b.dtype == "float" else as_float(g, a), b)


def _divide(state: Lowering, a: Any, b: Any, rounding_mode: str | None = None) -> Term:
    make = {None: _div, "floor": floor_divide, "trunc": _truncated}[rounding_mode]
    return pointwise(make)(state, a, b)  # type: ignore[no-any-return]


def _truncated(g: Graph, a: Value, b: Value) -> Value:
    return g.make("trunc", _div(g, a, b))


def floor_divide(g: Graph, a: Value, b: Value) -> Value:
    """torch.floor_divide: exact where a / b itself would round up to a whole number."""
    return g.make("rint", _div(g, g.sub(a, remainder(g, a, b)), b))


def _fmod(g: Graph, a: Value, b: Value) -> Value:
    if "float" not in (a.dtype, b.dtype):
        return g.make("mod", a, b)
    return g.make("fmod", as_float(g, a), as_float(g, b))


def remainder(g: Graph, a: Value, b: Value) -> Value:
    """torch.remainder, which has the sign of `b`."""
    rest, zero = _fmod(g, a, b), g.const(0.0 if "float" in (a.dtype, b.dtype) else 0)
    if b.op == "const":
        wrong = g.make("lt" if b.attr("value") > 0 else "gt", rest, zero)
    else:
        differ = g.make("ne", g.make("lt", rest, zero), g.make("lt", b, zero))
        wrong = g.make("and", g.make("ne", rest, zero), differ)
    return g.where(wrong, g.add(rest, b), rest)


def _round(state: Lowering, x: Any, decimals: int = 0) -> Term:
    t, g = state.term(x), state.graph
    if not decimals:
        return result(state, g.make("rint", t.value), [t])
    scale = g.const(10.0**decimals)
    return result(state, g.div(g.make("rint", g.mul(t.value, scale)), scale), [t])


def select(g: Graph, condition: Value, a: Value, b: Value) -> Value:
    if "float" in (a.dtype, b.dtype):
        a, b = as_float(g, a), as_float(g, b)
    return g.where(truth(g, condition), a, b)


def _bits(on_bools: str, on_ints: str) -> Row:
    def row(state: Lowering, a: Any, b: Any) -> Term:
        terms = [state.term(a), state.term(b)]
        values = [t.value for t in terms]
        if {v.dtype for v in values} == {"bool"}:
            return result(state, state.graph.make(on_bools, *values), terms)
        return result(state, state.graph.make(on_ints, *values), terms)

    return row


def _bitwise_not(g: Graph, x: Value) -> Value:
    return g.make("not", x) if x.dtype == "bool" else g.sub(g.neg(x), g.const(1))


def _logical(name: str) -> Row:
    return pointwise(lambda g, *values: g.make(name, *(truth(g, v) for v in values)))


def _nan_to_num(state: Lowering, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Term:
    if posinf is None or neginf is None:
        raise state.refuse("its largest number depends on the dtype", "give it nan, posinf and neginf")
    t, g = state.term(x), state.graph
    v = t.value
    value = g.where(g.make("ne", v, v), as_float(g, state.number(nan or 0.0)), v)
    for limit, new in ((math.inf, posinf), (-math.inf, neginf)):
        value = g.where(g.make("eq", v, g.const(limit)), as_float(g, state.number(new)), value)
    return result(state, value, [t])


def _addc(make: Callable[[Graph, Value, Value], Value]) -> Row:
    def row(state: Lowering, x: Any, a: Any, b: Any, value: Any = 1) -> Term:
        terms, g = [state.term(x), state.term(a), state.term(b)], state.graph
        part = make(g, terms[1].value, terms[2].value)
        part = part if value == 1 else g.mul(state.number(value), part)
        return result(state, g.add(terms[0].value, part), terms)

    return row


def _heaviside(g: Graph, x: Value, at_zero: Value) -> Value:
    step = g.where(g.make("gt", x, g.const(0.0)), g.const(1.0), g.const(0.0))
    # torch has no derivative of it.
    return g.make("detach", g.where(g.make("eq", x, g.const(0.0)), as_float(g, at_zero), step))


def _copysign(g: Graph, x: Value, sign: Value) -> Value:
    return g.make("copysign", as_float(g, x), as_float(g, sign))


def _rsub(state: Lowering, x: Any, other: Any, alpha: Any = 1) -> Term:
    return scaled(Graph.sub)(state, other, x, alpha)  # type: ignore[no-any-return]


def _lerp(g: Graph, a: Value, b: Value, weight: Value) -> Value:
    return g.add(a, g.mul(weight, g.sub(b, a)))


def _frac(g: Graph, x: Value) -> Value:
    return g.sub(x, g.make("trunc", x))


def _isfinite(g: Graph, x: Value) -> Value:
    return g.make("lt", g.make("abs", x), g.const(math.inf))


def _isinf(g: Graph, x: Value) -> Value:
    return g.make("eq", g.make("abs", x), g.const(math.inf))


def _logaddexp2(g: Graph, a: Value, b: Value) -> Value:
    ln_2 = g.const(math.log(2.0))
    return g.div(g.make("logaddexp", g.mul(a, ln_2), g.mul(b, ln_2)), ln_2)


_UNARY = {
    "abs": ("abs", "absolute"),
    "sign": ("sign", "sgn"),
    "exp": ("exp",),
    "exp2": ("exp2", "special_exp2"),
    "expm1": ("expm1", "special_expm1"),
    "log": ("log",),
    "log2": ("log2",),
    "log10": ("log10",),
    "log1p": ("log1p", "special_log1p"),
    "sqrt": ("sqrt",),
    "rsqrt": ("rsqrt",),
    "sin": ("sin",),
    "cos": ("cos",),
    "tan": ("tan",),
    "asin": ("asin", "arcsin"),
    "acos": ("acos", "arccos"),
    "atan": ("atan", "arctan"),
    "sinh": ("sinh",),
    "cosh": ("cosh",),
    "asinh": ("asinh", "arcsinh"),
    "acosh": ("acosh", "arccosh"),
    "atanh": ("atanh", "arctanh"),
    "erf": ("erf", "special_erf"),
    "erfc": ("erfc", "special_erfc"),
    "erfcx": ("special_erfcx",),
    "erfinv": ("erfinv", "special_erfinv"),
    "lgamma": ("lgamma", "special_gammaln"),
    "floor": ("floor",),
    "ceil": ("ceil",),
    "trunc": ("trunc", "fix"),
    "sinc": ("sinc", "special_sinc"),
    "entr": ("special_entr",),
    "tanh": ("tanh",),
    "sigmoid": ("sigmoid", "special_expit"),
}

_COMPARISONS = {
    "eq": ("eq",),
    "ne": ("ne", "not_equal"),
    "lt": ("lt", "less"),
    "le": ("le", "less_equal"),
    "gt": ("gt", "greater"),
    "ge": ("ge", "greater_equal"),
}


def _both(names: tuple[str, ...], row: Row) -> dict[str, Row]:
    """A binary function under each of its names, with a tensor or a number as second operand."""
    return {f"aten.{name}.{kind}": row for name in names for kind in ("Tensor", "Scalar")}


def _shifts(way: str) -> list[tuple[str, str]]:
    """The names of torch's shifts, with a tensor or a number as second operand."""
    kinds = {f"bitwise_{way}_shift": ("Tensor", "Tensor_Scalar"), f"__{way[0]}shift__": ("Tensor", "Scalar")}
    return [(name, kind) for name, own in kinds.items() for kind in own]


POINTWISE: dict[str, Row] = {
    **_both(("add",), scaled(_add)),
    **_both(("sub", "subtract"), scaled(Graph.sub)),
    **_both(("rsub",), _rsub),
    **_both(("mul", "multiply"), pointwise(_mul)),
    **_both(("div", "divide", "true_divide"), pointwise(_div)),
    "aten.div.Tensor_mode": _divide,
    "aten.div.Scalar_mode": _divide,
    "aten.floor_divide.default": pointwise(floor_divide),
    "aten.floor_divide.Scalar": pointwise(floor_divide),
    **_both(("fmod",), pointwise(_fmod)),
    **_both(("remainder",), pointwise(remainder)),
    "aten.neg.default": pointwise(Graph.neg),
    "aten.negative.default": pointwise(Graph.neg),
    "aten.positive.default": pointwise(lambda g, x: x),
    "aten.reciprocal.default": pointwise(lambda g, x: g.div(g.const(1.0), x)),
    "aten.square.default": pointwise(lambda g, x: g.mul(x, x)),
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Tensor_Tensor": _power,
    "aten.pow.Scalar": _power_of_number,
    **{f"aten.{name}.default": function(op) for op, names in _UNARY.items() for name in names},
    "aten.frac.default": pointwise(_frac),
    "aten.round.default": _round,
    "aten.round.decimals": _round,
    "aten.deg2rad.default": pointwise(lambda g, x: g.mul(x, g.const(math.pi / 180.0))),
    "aten.rad2deg.default": pointwise(lambda g, x: g.mul(x, g.const(180.0 / math.pi))),
    "aten.atan2.default": function("atan2"),
    "aten.arctan2.default": function("atan2"),
    "aten.hypot.default": function("hypot"),
    "aten.logaddexp.default": function("logaddexp"),
    "aten.logaddexp2.default": pointwise(_logaddexp2),
    **{
        f"aten.{n}.{k}": function("xlogy")
        for n in ("xlogy", "special_xlogy")
        for k in ("Tensor", "Scalar_Self", "Scalar_Other", "default", "self_scalar", "other_scalar")
    },
    "aten.special_xlog1py.default": function("xlog1py"),
    **{f"aten.copysign.{kind}": pointwise(_copysign) for kind in ("Tensor", "Scalar")},
    "aten.heaviside.default": pointwise(_heaviside),
    "aten.nan_to_num.default": _nan_to_num,
    "aten.lerp.Scalar": pointwise(_lerp),
    "aten.lerp.Tensor": pointwise(_lerp),
    "aten.addcmul.default": _addc(Graph.mul),
    "aten.addcdiv.default": _addc(_div),
    **{f"aten.{name}.default": operation(name) for name in ("maximum", "minimum")},
    "aten.max.other": operation("maximum"),
    "aten.min.other": operation("minimum"),
    "aten.fmax.default": function("fmax"),
    "aten.fmin.default": function("fmin"),
    **{f"aten.{name}.{kind}": _clamp for name in ("clamp", "clip") for kind in ("default", "Tensor")},
    **{f"aten.clamp_min.{kind}": _clamp for kind in ("default", "Tensor")},
    **{f"aten.clamp_max.{kind}": lambda state, x, high: _clamp(state, x, None, high) for kind in ("default", "Tensor")},
    **{name: row for op, names in _COMPARISONS.items() for name, row in _both(names, operation(op)).items()},
    "aten.isnan.default": pointwise(lambda g, x: g.make("ne", x, x)),
    "aten.isinf.default": pointwise(_isinf),
    "aten.isfinite.default": pointwise(_isfinite),
    "aten.signbit.default": pointwise(lambda g, x: g.make("lt", x, g.const(0.0))),
    "aten.logical_and.default": _logical("and"),
    "aten.logical_or.default": _logical("or"),
    "aten.logical_xor.default": _logical("ne"),
    "aten.logical_not.default": _logical("not"),
    **_both(("bitwise_and", "__and__"), _bits("and", "bitand")),
    **_both(("bitwise_or", "__or__"), _bits("or", "bitor")),
    **_both(("bitwise_xor", "__xor__"), _bits("ne", "bitxor")),
    **{f"aten.{name}.{kind}": operation("shift_left") for name, kind in _shifts("left")},
    **{f"aten.{name}.{kind}": operation("shift_right") for name, kind in _shifts("right")},
    "aten.bitwise_not.default": pointwise(_bitwise_not),
    **{f"aten.where.{kind}": pointwise(select) for kind in ("self", "ScalarOther", "ScalarSelf", "Scalar")},
    **{
        f"aten.masked_fill.{kind}": pointwise(lambda g, x, mask, value: select(g, mask, value, x))
        for kind in ("Scalar", "Tensor")
    },
    **ACTIVATIONS,
    **LOSSES,
    **NORMS,
    **CONSTANTS,
}
