"""One row an operation: arity, result type, what it means in torch, how Triton and a formula spell it, its adjoint.

Adding an operation is adding a row (here, or in `ops_functions`) and its test; a row can't be half-defined.
"""

import math

from typing import TYPE_CHECKING

import torch

from liger_dev.compiler.op import AND
from liger_dev.compiler.op import ATOM as ATOM
from liger_dev.compiler.op import COMPARE
from liger_dev.compiler.op import NEGATION
from liger_dev.compiler.op import OR
from liger_dev.compiler.op import PRODUCT as PRODUCT
from liger_dev.compiler.op import SUM as SUM
from liger_dev.compiler.op import Adjoint
from liger_dev.compiler.op import Op as Op
from liger_dev.compiler.op import call
from liger_dev.compiler.op import infix
from liger_dev.compiler.op import leaf
from liger_dev.compiler.op import no_gradient
from liger_dev.compiler.op import one
from liger_dev.compiler.op import reduction
from liger_dev.compiler.ops_functions import FUNCTIONS

if TYPE_CHECKING:
    from liger_dev.compiler.ir import Graph
    from liger_dev.compiler.ir import Value


def _pow(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    base, exponent = v.args
    zero = g.const(0.0)
    d_base = d_exponent = None
    if base.op not in ("const", "param"):
        lowered = g.make("pow", base, g.sub(exponent, g.const(1.0)))
        d_base = g.mul(d, g.mul(exponent, lowered))
    if exponent.op not in ("const", "param"):
        # torch gives 0 where 0 * inf would stand: at exponent 0, and at base 0.
        if d_base is not None:
            d_base = g.where(g.make("eq", exponent, zero), zero, d_base)
        logarithm = g.const(math.log(base.attr("value"))) if _is_positive(base) else g.make("log", base)
        d_exponent = g.mul(d, g.mul(v, logarithm))
        if not _is_positive(base):
            d_exponent = g.where(g.make("eq", base, zero), zero, d_exponent)
    return [d_base, d_exponent]


def _is_positive(value: "Value") -> bool:
    return value.op == "const" and value.attr("value") > 0


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
    """Adjoint of a clamp: torch lets the gradient through to the operand at the bound."""

    def rule(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
        inside = g.make(compare, *v.args)
        bound = None if v.args[1].op in ("const", "param") else g.where(inside, g.const(0.0), d)
        return [g.where(inside, d, g.const(0.0)), bound]

    return rule


def _clamp_between(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """Adjoint of a clamp to two tensors: at a bound the operand has it all, between equal bounds nobody."""
    x, low, high = v.args
    zero = g.const(0.0)
    inside = g.make("and", g.make("ge", x, low), g.make("le", x, high))
    below = g.make("and", g.make("lt", x, low), g.make("lt", low, high))
    above = g.make("or", g.make("gt", x, high), g.make("lt", high, low))
    return [g.where(inside, d, zero), g.where(below, d, zero), g.where(above, d, zero)]


def _extremum(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """Adjoint of a maximum over axes. torch shares the gradient evenly among the elements that attain it; where it has
    their index (`ties="first"`), the first one has it all."""
    x, zero = v.args[0], g.const(0.0)
    if dict(v.attrs).get("ties") == "first":
        (axis,) = v.attr("over")
        position = g.make("index", axes=frozenset({axis}), axis=axis)
        return [g.where(g.make("eq", position, g.make("argmax", x, over=(axis,))), d, zero)]
    attains = g.make("eq", x, v)
    ties = g.sum(g.where(attains, g.const(1.0), zero), v.attr("over"))
    return [g.where(attains, g.div(d, ties), zero)]


def _cumsum(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """A running sum from the other end; of what is the same along the axis, a multiple."""
    axis, reverse = v.attr("axis"), v.attr("reverse")
    if axis in d.axes:
        return [g.make("cumsum", d, axis=axis, reverse=not reverse)]
    position = g.make("index", axes=frozenset({axis}), axis=axis)
    count = g.add(position, g.const(1)) if reverse else g.sub(g.size([axis]), position)
    return [g.mul(d, g.make("float", count))]


def _cumprod(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """Each element's share of the products from there on. Where it is 0, the product without it: only the first 0 of a
    row has one that is not 0 itself."""
    x, (axis, reverse) = v.args[0], (v.attr("axis"), v.attr("reverse"))
    one = g.const(1.0)

    def back(value: "Value") -> "Value":
        return g.make("cumsum", value, axis=axis, reverse=not reverse)

    zero = g.make("eq", x, g.const(0.0))
    zeros = g.make("cumsum", g.where(zero, one, g.const(0.0)), axis=axis, reverse=reverse)
    first = g.make("and", zero, g.make("eq", zeros, one))
    without = g.make("cumprod", g.where(first, one, x), axis=axis, reverse=reverse)
    share = g.div(back(g.mul(d, v)), g.where(zero, one, x))
    return [g.where(first, back(g.mul(d, without)), g.where(zero, g.const(0.0), share))]


def _kth_largest(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """The gradient belongs to one element; of equal ones, to that which a stable sort puts there."""
    x, (axis,) = v.args[0], v.attr("over")
    zero, one = g.const(0.0), g.const(1.0)
    equal, larger = g.make("eq", x, v), g.sum(g.where(g.make("gt", x, v), one, zero), [axis])
    nth = g.make("cumsum", g.where(equal, one, zero), axis=axis, reverse=False)
    own = g.make("and", equal, g.make("eq", nth, g.sub(g.const(float(v.attr("k"))), larger)))
    return [g.where(own, d, zero)]


def _simplex_threshold(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    """The elements above the threshold share the gradient."""
    above = g.make("gt", v.args[0], v)
    count = g.sum(g.where(above, g.const(1.0), g.const(0.0)), v.attr("over"))
    return [g.where(above, g.div(d, count), g.const(0.0))]


def _softmax(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    over = v.attr("over")
    return [g.mul(v, g.sub(d, g.sum(g.mul(d, v), over)))]


def _log_softmax(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    return [g.sub(d, g.mul(g.make("exp", v), g.sum(d, v.attr("over"))))]


def _logsumexp(g: "Graph", v: "Value", d: "Value") -> list["Value | None"]:
    total, rest = _share(g, d, v)
    return [g.mul(rest, g.make("exp", g.sub(v.args[0], total)))]


def _share(g: "Graph", d: "Value", v: "Value") -> tuple["Value", "Value"]:
    """`total` and `rest` where d is rest * exp(v - total), since v is a part of it; else v and d."""
    inner = d.args[0] if d.op == "neg" else d
    for rest, share in (inner.args, inner.args[::-1]) if inner.op == "mul" else ():
        if share.op == "exp" and share.args[0].op == "sub" and share.args[0].args[0] is v:
            return share.args[0].args[1], g.neg(rest) if d.op == "neg" else rest
    return v, d


def fixed(x: torch.Tensor, to: str) -> torch.Tensor:
    return x.to(getattr(torch, to)).double()


def _propagating(name: str) -> str:
    return f"tl.{name}({{0}}, {{1}}, propagate_nan=tl.PropagateNan.ALL)"


OPS: dict[str, Op] = {
    **FUNCTIONS,
    "input": leaf(),
    "const": leaf(),
    "param": leaf(),
    "size": leaf(),
    "add": infix("+", SUM, torch.add, lambda g, v, d: [d, d]),
    "sub": infix("-", SUM, torch.sub, lambda g, v, d: [d, g.neg(d)]),
    "mul": infix("*", PRODUCT, torch.mul, lambda g, v, d: [g.mul(d, v.args[1]), g.mul(d, v.args[0])]),
    "div": infix(
        "/",
        PRODUCT,
        torch.div,
        lambda g, v, d: [g.div(d, v.args[1]), g.neg(g.div(g.mul(d, v), v.args[1]))],
    ),
    "neg": Op(1, "-{0}", "-{0}", NEGATION, torch.neg, one(lambda g, x, y, d: g.neg(d))),
    "pow": Op(2, "libdevice.pow({0}, {1})", "pow({0}, {1})", ATOM, torch.pow, _pow, "float", False, True),
    "eq": infix("==", COMPARE, torch.eq, no_gradient, "bool"),
    "ne": infix("!=", COMPARE, torch.ne, no_gradient, "bool"),
    "lt": infix("<", COMPARE, torch.lt, no_gradient, "bool"),
    "le": infix("<=", COMPARE, torch.le, no_gradient, "bool"),
    "gt": infix(">", COMPARE, torch.gt, no_gradient, "bool"),
    "ge": infix(">=", COMPARE, torch.ge, no_gradient, "bool"),
    "and": infix("&", AND, torch.logical_and, no_gradient, "bool"),
    "or": infix("|", OR, torch.logical_or, no_gradient, "bool"),
    "not": Op(1, "~{0}", "not {0}", NEGATION, torch.logical_not, no_gradient, "bool"),
    "bitand": infix("&", AND, lambda a, b: torch.bitwise_and(a.long(), b.long()), no_gradient, "int"),
    "bitor": infix("|", OR, lambda a, b: torch.bitwise_or(a.long(), b.long()), no_gradient, "int"),
    "bitxor": infix("^", AND, lambda a, b: torch.bitwise_xor(a.long(), b.long()), no_gradient, "int"),
    "shift_left": infix("<<", AND, lambda a, b: torch.bitwise_left_shift(a.long(), b.long()), no_gradient, "int"),
    "shift_right": infix(">>", AND, lambda a, b: torch.bitwise_right_shift(a.long(), b.long()), no_gradient, "int"),
    "mod": infix("%", PRODUCT, torch.fmod, no_gradient, "int"),
    "where": Op(
        3,
        "tl.where({0}, {1}, {2})",
        "where({0}, {1}, {2})",
        ATOM,
        torch.where,
        lambda g, v, d: [None, g.where(v.args[0], d, g.const(0.0)), g.where(v.args[0], g.const(0.0), d)],
    ),
    "maximum": Op(2, _propagating("maximum"), "max({0}, {1})", ATOM, torch.maximum, _pick("gt")),
    "minimum": Op(2, _propagating("minimum"), "min({0}, {1})", ATOM, torch.minimum, _pick("lt")),
    # where keeps NaN, as torch does; tl.maximum(x, 0.0) would not.
    "at_least": Op(2, "tl.where({0} < {1}, {1}, {0})", "max({0}, {1})", ATOM, torch.maximum, lambda g, v, d: [d, None]),
    "clamp_min": Op(2, "tl.where({0} < {1}, {1}, {0})", "max({0}, {1})", ATOM, torch.maximum, _clamp("ge")),
    "clamp_max": Op(2, "tl.where({0} > {1}, {1}, {0})", "min({0}, {1})", ATOM, torch.minimum, _clamp("le")),
    "clamp": Op(
        3,
        _propagating("minimum").format(_propagating("maximum"), "{2}"),
        "clamp({0}, {1}, {2})",
        ATOM,
        torch.clamp,
        _clamp_between,
    ),
    "relu": Op(
        1,
        "tl.where({0} < 0.0, 0.0, {0})",
        "relu({0})",
        ATOM,
        torch.relu,
        one(lambda g, x, y, d: g.where(g.make("le", x, g.const(0.0)), g.const(0.0), d)),
    ),
    "abs": call("tl.abs", torch.abs, one(lambda g, x, y, d: g.mul(d, g.make("sign", x))), precise=False),
    "sign": Op(
        1,
        "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
        "sign({0})",
        ATOM,
        torch.sign,
        lambda g, v, d: [None],
    ),
    "float": Op(
        1, "tl.cast({0}, tl.float32)", "float({0})", ATOM, lambda x: x.double(), lambda g, v, d: [None], "float"
    ),
    "int": Op(1, "tl.cast({0}, tl.int64)", "int({0})", ATOM, lambda x: x.long(), no_gradient, "int"),
    # The position along an axis.
    "index": Op(0, "cols", "index", ATOM, None, no_gradient, "int"),
    # The position in a tensor of all axes in `order`, counted through.
    "position": Op(0, "", "position", ATOM, None, no_gradient, "int"),
    # A rounding that the reference asks for: to the dtype of the inputs named by `like`.
    "round": Op(1, "", "{0}", ATOM, lambda x, like: x, one(lambda g, x, y, d: d), "float"),
    # A rounding to the dtype named by `to`, whatever the inputs' own is; torch rounds its gradient likewise.
    "fixed": Op(1, "", "{0}", ATOM, fixed, one(lambda g, x, y, d: g.make("fixed", d, to=y.attr("to"))), "float"),
    # Pieces side by side along an axis; lifted to the outputs before differentiation.
    "cat": Op(None, "", "cat({0})", ATOM, None, None),
    # The identity forward, no gradient backward.
    "detach": Op(1, "{0}", "{0}", ATOM, lambda x: x, lambda g, v, d: [None]),
    "sum": reduction("sum", lambda g, v, d: [d]),
    "max": reduction("max", _extremum, precise=False),
    # The position of the maximum, the first one of equals.
    "argmax": Op(1, "", "argmax({0})", ATOM, None, no_gradient, "int", True),
    # The running sum along `axis`, from its end if `reverse`.
    "cumsum": Op(1, "", "cumsum({0})", ATOM, None, _cumsum, "float", False, True),
    "cumprod": Op(1, "", "cumprod({0})", ATOM, None, _cumprod, "float", False, True),
    # Rows in falling order; a graph that is scheduled has none.
    "sort": Op(1, "", "sort({0})", ATOM, None, None, "float", False, True),
    "kth_largest": Op(1, "", "kth_largest({0})", ATOM, None, _kth_largest, "float", True),
    # The number that a row exceeds by `total`: sum(max(x - threshold, 0)) = total.
    "simplex_threshold": Op(1, "", "simplex_threshold({0})", ATOM, None, _simplex_threshold, "float", True, True),
    "softmax": Op(1, "", "softmax({0})", ATOM, None, _softmax, "float", False, True),
    "log_softmax": Op(1, "", "log_softmax({0})", ATOM, None, _log_softmax, "float", False, True),
    "logsumexp": reduction("logsumexp", _logsumexp),
}
