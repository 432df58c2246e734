"""The table's rows of mathematical functions: exponentials, trigonometry, roundings, and functions of two arguments."""

import math

from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any

import torch

from liger_dev.compiler.op import ATOM
from liger_dev.compiler.op import PRODUCT
from liger_dev.compiler.op import SUM
from liger_dev.compiler.op import Adjoint
from liger_dev.compiler.op import Op
from liger_dev.compiler.op import call
from liger_dev.compiler.op import no_gradient
from liger_dev.compiler.op import one

if TYPE_CHECKING:
    from liger_dev.compiler.ir import Graph
    from liger_dev.compiler.ir import Value

_LN_2, _LN_10 = math.log(2.0), math.log(10.0)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_SIXTH = float(torch.tensor(1.0 / 6.0, dtype=torch.float32))


def _zero_where(g: "Graph", compare: str, a: "Value", b: "Value", otherwise: "Value") -> "Value":
    return g.where(g.make(compare, a, b), g.const(0.0), otherwise)


def _within_three(g: "Graph", x: "Value") -> "Value":
    return g.make("lt", g.make("abs", x), g.const(3.0))


def _less_square(g: "Graph", x: "Value") -> "Value":
    """1 - x * x"""
    return g.sub(g.const(1.0), g.mul(x, x))


def _more_square(g: "Graph", x: "Value") -> "Value":
    """x * x + 1"""
    return g.add(g.mul(x, x), g.const(1.0))


def _gauss(g: "Graph", x: "Value", d: "Value") -> "Value":
    return g.mul(d, g.mul(g.const(_TWO_OVER_SQRT_PI), g.make("exp", g.neg(g.mul(x, x)))))


def _atan2(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    y, x = v.args
    square = g.add(g.mul(x, x), g.mul(y, y))
    scaled = _zero_where(g, "eq", square, g.const(0.0), g.div(d, square))
    return [g.mul(scaled, x), g.neg(g.mul(scaled, y))]


def _hypot(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    return [g.div(g.mul(d, arg), v) for arg in v.args]


def _fmod(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    quotient = g.make("trunc", g.div(*v.args))
    return [d, None if v.args[1].op in ("const", "param") else g.neg(g.mul(d, quotient))]


def _copysign(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    x = v.args[0]
    return [_zero_where(g, "eq", x, g.const(0.0), g.div(g.mul(d, v), x)), None]


def _logaddexp(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    a, b = v.args
    if "logsumexp" in (a.op, b.op):  # a row's maximum is taken off these
        return [g.mul(d, g.make("exp", g.sub(arg, v))) for arg in v.args]
    return [g.mul(d, g.make("sigmoid", g.sub(a, b))), g.mul(d, g.make("sigmoid", g.sub(b, a)))]


def _xlogy(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    x, y = v.args
    zero = g.const(0.0)
    neither = g.make("and", g.make("eq", x, zero), g.make("le", y, zero))
    # A gradient of 0 stays 0, whatever the logarithm is.
    d_x = g.make("xlogy", d, y)
    if x is y:  # 0 divided by itself is no number
        return [g.where(g.make("eq", y, zero), g.const(math.nan), d_x), d]
    return [g.where(neither, zero, d_x), g.div(g.mul(d, x), y)]


def _xlog1py(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    x, y = v.args
    neither = g.make("and", g.make("eq", x, g.const(0.0)), g.make("le", y, g.const(-1.0)))
    more = g.add(y, g.const(1.0))
    return [g.where(neither, g.const(0.0), g.mul(d, g.make("log1p", y))), g.div(g.mul(d, x), more)]


def _sinc(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """(cos(pi x) - sinc(x)) / x cancels near 0: there its series, to 1e-12 of itself."""
    (x,) = v.args
    angle = g.mul(g.const(math.pi), x)
    square, series = g.mul(angle, angle), g.const(1.0 / 45360.0)
    for coefficient in (-1.0 / 840.0, 1.0 / 30.0, -1.0 / 3.0):
        series = g.add(g.mul(series, square), g.const(coefficient))
    near = g.mul(g.mul(g.const(math.pi), angle), series)
    far = g.div(g.sub(g.make("cos", angle), v), x)
    slope = g.where(g.make("lt", g.make("abs", x), g.const(0.05)), near, far)
    return [g.mul(d, slope)]


def _logit(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """d / (x * (1 - x)), as the square of a root that is NaN outside of [0, 1], where torch's gradient is."""
    x = v.args[0]
    root = g.make("rsqrt", g.mul(x, g.sub(g.const(1.0), x)))
    return [g.mul(d, g.mul(root, root))]


def _larger(compare: str) -> Adjoint:
    """Adjoint of fmax and fmin: the first operand wins a tie, and the number wins against NaN."""

    def rule(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
        a, b = v.args
        first = g.make("or", g.make(compare, a, b), g.make("ne", b, b))
        return [g.where(first, d, g.const(0.0)), g.where(first, g.const(0.0), d)]

    return rule


def _two(triton: str, formula: str, evaluate: Callable[..., Any], rule: Adjoint, strength: int = ATOM) -> Op:
    return Op(2, triton, formula, strength, evaluate, rule, "float", precise=True, formula_call=True)


def _binary_cross_entropy(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    p, target = v.args
    variance = g.make("clamp_min", g.mul(p, g.sub(g.const(1.0), p)), g.const(1e-12))
    d_target = g.sub(g.make("log1p", g.neg(p)), g.make("log", p))
    return [g.div(g.mul(d, g.sub(p, target)), variance), g.mul(d, d_target)]


def _cross_entropy(p: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return -(target * p.log().clamp_min(-100.0) + (1.0 - target) * (-p).log1p().clamp_min(-100.0))


def _logits_cross_entropy(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    x, target = v.args
    return [g.mul(d, g.sub(g.make("sigmoid", x), target)), g.neg(g.mul(d, x))]


def _hardswish(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    x, three = v.args[0], g.const(3.0)
    curve = g.mul(d, g.add(g.div(x, three), g.const(0.5)))
    return [_zero_where(g, "le", x, g.const(-3.0), g.where(g.make("ge", x, three), d, curve))]


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _bounded(logarithm: str) -> str:
    return f"tl.maximum({logarithm}, -100.0, propagate_nan=tl.PropagateNan.ALL)"


FUNCTIONS: dict[str, Op] = {
    "exp": call("tl.exp", torch.exp, one(lambda g, x, y, d: g.mul(d, y))),
    "exp2": call("tl.exp2", torch.exp2, one(lambda g, x, y, d: g.mul(d, g.mul(g.const(_LN_2), y)))),
    "expm1": call("libdevice.expm1", torch.expm1, one(lambda g, x, y, d: g.mul(d, g.add(y, g.const(1.0))))),
    "log": call("tl.log", torch.log, one(lambda g, x, y, d: g.div(d, x))),
    "log2": call("tl.log2", torch.log2, one(lambda g, x, y, d: g.div(d, g.mul(g.const(_LN_2), x)))),
    "log10": call("libdevice.log10", torch.log10, one(lambda g, x, y, d: g.div(d, g.mul(g.const(_LN_10), x)))),
    "log1p": call("libdevice.log1p", torch.log1p, one(lambda g, x, y, d: g.div(d, g.add(x, g.const(1.0))))),
    "sqrt": call("tl.sqrt", torch.sqrt, one(lambda g, x, y, d: g.div(g.mul(g.const(0.5), d), y))),
    # The root of a sum of squares: its gradient at 0 is 0, where that of sqrt is infinite.
    "norm_root": call(
        "tl.sqrt",
        torch.sqrt,
        one(lambda g, x, y, d: _zero_where(g, "eq", y, g.const(0.0), g.div(g.mul(g.const(0.5), d), y))),
    ),
    "rsqrt": call("tl.rsqrt", torch.rsqrt, one(lambda g, x, y, d: g.mul(g.mul(g.const(-0.5), d), g.power(y, 3)))),
    "sigmoid": call(
        "tl.sigmoid",
        torch.sigmoid,
        one(lambda g, x, y, d: g.mul(d, g.mul(y, g.sub(g.const(1.0), y)))),
    ),
    # max(x, 0) + log1p(exp(-|x|)) neither overflows nor loses a small result.
    "softplus": Op(
        1,
        "tl.maximum({0}, 0.0) + libdevice.log1p(tl.exp(-tl.abs({0})))",
        "softplus({0})",
        SUM,
        _softplus,
        one(lambda g, x, y, d: g.mul(d, g.make("sigmoid", x))),
        "float",
        precise=True,
        formula_call=True,
    ),
    "logit": Op(
        1,
        "tl.log({0} / (1.0 - {0}))",
        "logit({0})",
        ATOM,
        torch.logit,
        _logit,
        "float",
        False,
        True,
    ),
    "sin": call("tl.sin", torch.sin, one(lambda g, x, y, d: g.mul(d, g.make("cos", x)))),
    "cos": call("tl.cos", torch.cos, one(lambda g, x, y, d: g.neg(g.mul(d, g.make("sin", x))))),
    "tan": call("libdevice.tan", torch.tan, one(lambda g, x, y, d: g.mul(d, _more_square(g, y)))),
    "asin": call("libdevice.asin", torch.asin, one(lambda g, x, y, d: g.mul(d, g.make("rsqrt", _less_square(g, x))))),
    "acos": call(
        "libdevice.acos", torch.acos, one(lambda g, x, y, d: g.neg(g.mul(d, g.make("rsqrt", _less_square(g, x)))))
    ),
    "atan": call("libdevice.atan", torch.atan, one(lambda g, x, y, d: g.div(d, _more_square(g, x)))),
    "sinh": call("libdevice.sinh", torch.sinh, one(lambda g, x, y, d: g.mul(d, g.make("cosh", x)))),
    "cosh": call("libdevice.cosh", torch.cosh, one(lambda g, x, y, d: g.mul(d, g.make("sinh", x)))),
    "tanh": call("branchless_tanh", torch.tanh, one(lambda g, x, y, d: g.mul(d, _less_square(g, y))), "tanh"),
    "asinh": call(
        "libdevice.asinh", torch.asinh, one(lambda g, x, y, d: g.mul(d, g.make("rsqrt", _more_square(g, x))))
    ),
    "acosh": call(
        "libdevice.acosh",
        torch.acosh,
        one(lambda g, x, y, d: g.mul(d, g.make("rsqrt", g.sub(g.mul(x, x), g.const(1.0))))),
    ),
    "atanh": call("libdevice.atanh", torch.atanh, one(lambda g, x, y, d: g.div(d, _less_square(g, x)))),
    "erf": call("tl.erf", torch.erf, one(lambda g, x, y, d: _gauss(g, x, d))),
    "erfc": call("libdevice.erfc", torch.erfc, one(lambda g, x, y, d: g.neg(_gauss(g, x, d)))),
    "erfcx": call(
        "libdevice.erfcx",
        torch.special.erfcx,
        one(lambda g, x, y, d: g.mul(d, g.sub(g.mul(g.const(2.0), g.mul(x, y)), g.const(_TWO_OVER_SQRT_PI)))),
    ),
    "erfinv": call(
        "libdevice.erfinv",
        torch.erfinv,
        one(lambda g, x, y, d: g.mul(d, g.mul(g.const(1.0 / _TWO_OVER_SQRT_PI), g.make("exp", g.mul(y, y))))),
    ),
    # Its derivative, digamma, is no function of libdevice.
    "lgamma": call("libdevice.lgamma", torch.lgamma, None),
    "floor": call("tl.floor", torch.floor, no_gradient, precise=False),
    "ceil": call("tl.ceil", torch.ceil, no_gradient, precise=False),
    "trunc": call("libdevice.trunc", torch.trunc, no_gradient, precise=False),
    # To the nearest whole number, ties to even; AMD's libdevice has no rint.
    "rint": call("libdevice.nearbyint", torch.round, no_gradient, "rint", precise=False),
    "sinc": Op(
        1,
        f"tl.where({{0}} == 0.0, 1.0, tl.sin({math.pi} * {{0}}) / ({math.pi} * {{0}}))",
        "sinc({0})",
        ATOM,
        torch.sinc,
        _sinc,
        "float",
        False,
        True,
    ),
    "entr": Op(
        1,
        'tl.where({0} < 0.0, float("-inf"), tl.where({0} == 0.0, 0.0, -{0} * tl.log({0})))',
        "entr({0})",
        ATOM,
        torch.special.entr,
        one(lambda g, x, y, d: g.neg(g.mul(d, g.add(g.make("log", x), g.const(1.0))))),
        "float",
        False,
        True,
    ),
    # torch's gradient is 1 / 6 in float32, whatever the dtype.
    "hardsigmoid": Op(
        1,
        "tl.where({0} <= -3.0, 0.0, tl.where({0} >= 3.0, 1.0, ({0} + 3.0) / 6.0))",
        "hardsigmoid({0})",
        ATOM,
        torch.nn.functional.hardsigmoid,
        one(lambda g, x, y, d: g.where(_within_three(g, x), g.mul(d, g.const(_SIXTH)), g.const(0.0))),
        "float",
    ),
    "hardswish": Op(
        1,
        "{0} * tl.minimum(tl.maximum({0} + 3.0, 0.0), 6.0) / 6.0",
        "hardswish({0})",
        PRODUCT,
        torch.nn.functional.hardswish,
        _hardswish,
        "float",
        formula_call=True,
    ),
    "atan2": _two("libdevice.atan2({0}, {1})", "atan2({0}, {1})", torch.atan2, _atan2),
    "hypot": _two("libdevice.hypot({0}, {1})", "hypot({0}, {1})", torch.hypot, _hypot),
    "fmod": _two("libdevice.fmod({0}, {1})", "fmod({0}, {1})", torch.fmod, _fmod),
    "copysign": _two("libdevice.copysign({0}, {1})", "copysign({0}, {1})", torch.copysign, _copysign),
    # Equal operands apart: infinities of one sign would give NaN.
    "logaddexp": _two(
        f"tl.where({{0}} == {{1}}, {{0}} + {_LN_2}, "
        "tl.maximum({0}, {1}) + libdevice.log1p(tl.exp(-tl.abs({0} - {1}))))",
        "logaddexp({0}, {1})",
        torch.logaddexp,
        _logaddexp,
    ),
    "xlogy": _two("tl.where({0} == 0.0, 0.0, {0} * tl.log({1}))", "xlogy({0}, {1})", torch.xlogy, _xlogy),
    "xlog1py": _two(
        "tl.where({0} == 0.0, 0.0, {0} * libdevice.log1p({1}))", "xlog1py({0}, {1})", torch.special.xlog1py, _xlog1py
    ),
    # torch bounds the logarithms, and the gradient's denominator.
    "binary_cross_entropy": _two(
        f"-{{1}} * {_bounded('tl.log({0})')} - (1.0 - {{1}}) * {_bounded('libdevice.log1p(-{0})')}",
        "binary_cross_entropy({0}, {1})",
        _cross_entropy,
        _binary_cross_entropy,
        SUM,
    ),
    # torch's form, which is NaN for an infinite logit where torch is.
    "binary_cross_entropy_with_logits": _two(
        "(1.0 - {1}) * {0} + tl.maximum(-{0}, 0.0) + libdevice.log1p(tl.exp(-tl.abs({0})))",
        "binary_cross_entropy_with_logits({0}, {1})",
        torch.nn.BCEWithLogitsLoss(reduction="none"),
        _logits_cross_entropy,
        SUM,
    ),
    # What is multiplied by the first operand afterwards: left out where that is 0, also if it is infinite.
    "where_weighted": Op(
        2,
        "tl.where({0} == 0.0, 0.0, {1})",
        "{1}",
        ATOM,
        lambda weight, x: torch.where(weight == 0, 0.0, x),
        lambda g, v, d: [None, d],
        "float",
    ),
    "fmax": _two("tl.maximum({0}, {1})", "fmax({0}, {1})", torch.fmax, _larger("ge")),
    "fmin": _two("tl.minimum({0}, {1})", "fmin({0}, {1})", torch.fmin, _larger("le")),
}
