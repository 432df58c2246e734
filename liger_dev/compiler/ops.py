"""One row an operation: arity, result type, what it means in torch, how Triton and a formula spell it, its adjoint.

Adding an operation is adding a row here and its test; a row can't be half-defined.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Any

import torch

if TYPE_CHECKING:
    from liger_dev.compiler.ir import Graph
    from liger_dev.compiler.ir import Value

Adjoint = Callable[["Graph", "Value", "Value"], list["Value | None"]]

# Binding strength of operators, as in Python, where & and | bind tighter than comparisons; an operand that binds less
# tightly gets parentheses.
COMPARE, OR, AND, SUM, PRODUCT, NEGATION, ATOM = 1, 2, 3, 4, 5, 6, 9


@dataclass(frozen=True)
class Op:
    """What one operation means, to each interpreter of the graph.

    Args:
        arity: number of arguments; None if it varies.
        triton, formula: format strings over the arguments' spellings; empty for leaves.
        strength: of the outermost operator in both.
        evaluate: torch function of the arguments (and attributes), or None for leaves and reductions.
        adjoint: (graph, value, gradient of value) -> gradient of each argument; None where there is none.
        dtype: the result's type if it does not follow from the arguments.
        precise: needs float32 whatever the inputs are (listed in the profile).
    """

    arity: int | None
    triton: str
    formula: str
    strength: int
    evaluate: Callable[..., Any] | None
    adjoint: Adjoint | None
    dtype: str = ""
    reduces: bool = False
    precise: bool = False


def _none(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    return [None] * len(v.args)


def _one(rule: "Callable[[Graph, Value, Value, Value], Value]") -> Adjoint:
    """The adjoint of a unary operation from its rule (graph, argument, result, gradient) -> gradient."""
    return lambda g, v, d: [rule(g, v.args[0], v, d)]


def _pow(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    base, exponent = v.args
    lowered = g.make("pow", base, g.sub(exponent, g.const(1.0)))
    d_base = g.mul(d, g.mul(exponent, lowered))
    if exponent.op in ("const", "param"):
        return [d_base, None]
    # torch gives 0 where 0 * inf would stand: at exponent 0, and at base 0.
    d_exponent = g.mul(d, g.mul(v, g.make("log", base)))
    zero = g.const(0.0)
    return [g.where(g.make("eq", exponent, zero), zero, d_base), g.where(g.make("eq", base, zero), zero, d_exponent)]


def _pick(compare: str) -> Adjoint:
    """Adjoint of maximum and minimum: torch gives each side half at a tie."""

    def rule(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
        a, b = v.args
        half = g.where(g.make("eq", a, b), g.mul(d, g.const(0.5)), g.const(0.0))
        return [
            g.where(g.make(compare, a, b), d, half),
            g.where(g.make(compare, b, a), d, half),
        ]

    return rule


def _clamp(compare: str) -> Adjoint:
    """Adjoint of a clamp to a bound that carries no gradient: torch lets the gradient through at the bound."""
    return lambda g, v, d: [g.where(g.make(compare, *v.args), d, g.const(0.0)), None]


def _softmax(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    over = v.attr("over")
    return [g.mul(v, g.sub(d, g.sum(g.mul(d, v), over)))]


def _log_softmax(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    return [g.sub(d, g.mul(g.make("exp", v), g.sum(d, v.attr("over"))))]


def _logsumexp(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    return [g.mul(d, g.make("exp", g.sub(v.args[0], v)))]


def _leaf() -> Op:
    return Op(0, "", "", ATOM, None, _none)


def _call(name: str, evaluate: Callable[..., Any], rule: Any, formula: str = "", precise: bool = True) -> Op:
    return Op(
        1, f"{name}({{0}})", f"{formula or name.split('.')[-1]}({{0}})", ATOM, evaluate, rule, "float", False, precise
    )


def _infix(symbol: str, strength: int, evaluate: Callable[..., Any], rule: Adjoint, dtype: str = "") -> Op:
    spelled = f"{{0}} {symbol} {{1}}"
    return Op(2, spelled, spelled, strength, evaluate, rule, dtype)


def _reduction(name: str, rule: Adjoint | None, precise: bool = True) -> Op:
    return Op(1, "", f"{name}({{0}})", ATOM, None, rule, "", True, precise)


_TWO_OVER_SQRT_PI = 1.1283791670955126

OPS: dict[str, Op] = {
    "input": _leaf(),
    "const": _leaf(),
    "index": _leaf(),
    "param": _leaf(),
    "size": _leaf(),
    "add": _infix("+", SUM, torch.add, lambda g, v, d: [d, d]),
    "sub": _infix("-", SUM, torch.sub, lambda g, v, d: [d, g.neg(d)]),
    "mul": _infix("*", PRODUCT, torch.mul, lambda g, v, d: [g.mul(d, v.args[1]), g.mul(d, v.args[0])]),
    "div": _infix(
        "/",
        PRODUCT,
        torch.div,
        lambda g, v, d: [g.div(d, v.args[1]), g.neg(g.div(g.mul(d, v), v.args[1]))],
    ),
    "neg": Op(1, "-{0}", "-{0}", NEGATION, torch.neg, _one(lambda g, x, y, d: g.neg(d))),
    "pow": Op(2, "libdevice.pow({0}, {1})", "pow({0}, {1})", ATOM, torch.pow, _pow, "float", False, True),
    "eq": _infix("==", COMPARE, torch.eq, _none, "bool"),
    "ne": _infix("!=", COMPARE, torch.ne, _none, "bool"),
    "lt": _infix("<", COMPARE, torch.lt, _none, "bool"),
    "le": _infix("<=", COMPARE, torch.le, _none, "bool"),
    "gt": _infix(">", COMPARE, torch.gt, _none, "bool"),
    "ge": _infix(">=", COMPARE, torch.ge, _none, "bool"),
    "and": _infix("&", AND, torch.logical_and, _none, "bool"),
    "or": _infix("|", OR, torch.logical_or, _none, "bool"),
    "not": Op(1, "~{0}", "not {0}", NEGATION, torch.logical_not, _none, "bool"),
    "where": Op(
        3,
        "tl.where({0}, {1}, {2})",
        "where({0}, {1}, {2})",
        ATOM,
        torch.where,
        lambda g, v, d: [None, g.where(v.args[0], d, g.const(0.0)), g.where(v.args[0], g.const(0.0), d)],
    ),
    "maximum": Op(2, "tl.maximum({0}, {1})", "max({0}, {1})", ATOM, torch.maximum, _pick("gt")),
    "minimum": Op(2, "tl.minimum({0}, {1})", "min({0}, {1})", ATOM, torch.minimum, _pick("lt")),
    "clamp_min": Op(2, "tl.maximum({0}, {1})", "max({0}, {1})", ATOM, torch.maximum, _clamp("ge")),
    "clamp_max": Op(2, "tl.minimum({0}, {1})", "min({0}, {1})", ATOM, torch.minimum, _clamp("le")),
    # where keeps NaN, as torch.relu does; tl.maximum(x, 0.0) would not.
    "relu": Op(
        1,
        "tl.where({0} < 0.0, 0.0, {0})",
        "relu({0})",
        ATOM,
        torch.relu,
        _one(lambda g, x, y, d: g.where(g.make("le", x, g.const(0.0)), g.const(0.0), d)),
    ),
    "abs": _call("tl.abs", torch.abs, _one(lambda g, x, y, d: g.mul(d, g.make("sign", x))), precise=False),
    "sign": Op(
        1,
        "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
        "sign({0})",
        ATOM,
        torch.sign,
        lambda g, v, d: [None],
    ),
    "exp": _call("tl.exp", torch.exp, _one(lambda g, x, y, d: g.mul(d, y))),
    "log": _call("tl.log", torch.log, _one(lambda g, x, y, d: g.div(d, x))),
    "log1p": _call("libdevice.log1p", torch.log1p, _one(lambda g, x, y, d: g.div(d, g.add(x, g.const(1.0))))),
    "expm1": _call("libdevice.expm1", torch.expm1, _one(lambda g, x, y, d: g.mul(d, g.add(y, g.const(1.0))))),
    "sqrt": _call("tl.sqrt", torch.sqrt, _one(lambda g, x, y, d: g.div(g.mul(g.const(0.5), d), y))),
    "rsqrt": _call("tl.rsqrt", torch.rsqrt, _one(lambda g, x, y, d: g.mul(g.mul(g.const(-0.5), d), g.power(y, 3)))),
    "sigmoid": _call(
        "tl.sigmoid",
        torch.sigmoid,
        _one(lambda g, x, y, d: g.mul(d, g.mul(y, g.sub(g.const(1.0), y)))),
    ),
    "tanh": _call(
        "libdevice.tanh",
        torch.tanh,
        _one(lambda g, x, y, d: g.mul(d, g.sub(g.const(1.0), g.mul(y, y)))),
    ),
    "erf": _call(
        "tl.erf",
        torch.erf,
        _one(lambda g, x, y, d: g.mul(d, g.mul(g.const(_TWO_OVER_SQRT_PI), g.make("exp", g.neg(g.mul(x, x)))))),
    ),
    "sin": _call("tl.sin", torch.sin, _one(lambda g, x, y, d: g.mul(d, g.make("cos", x)))),
    "cos": _call("tl.cos", torch.cos, _one(lambda g, x, y, d: g.neg(g.mul(d, g.make("sin", x))))),
    "float": Op(1, "{0}.to(tl.float32)", "float({0})", ATOM, lambda x: x.double(), lambda g, v, d: [None], "float"),
    # A rounding that the reference asks for: to the dtype of the inputs named by `like`.
    "round": Op(1, "", "{0}", ATOM, lambda x, like: x, _one(lambda g, x, y, d: d), "float"),
    # Pieces side by side along an axis; lifted to the outputs before differentiation.
    "cat": Op(None, "", "cat({0})", ATOM, None, None),
    # The identity forward, no gradient backward.
    "detach": Op(1, "{0}", "{0}", ATOM, lambda x: x, lambda g, v, d: [None]),
    "sum": _reduction("sum", lambda g, v, d: [d]),
    "max": _reduction("max", None, precise=False),
    "softmax": Op(1, "", "softmax({0})", ATOM, None, _softmax, "float", False, True),
    "log_softmax": Op(1, "", "log_softmax({0})", ATOM, None, _log_softmax, "float", False, True),
    "logsumexp": _reduction("logsumexp", _logsumexp),
}
