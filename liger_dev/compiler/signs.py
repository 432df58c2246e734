"""A value in, whether it is at most or at least 0 whatever the inputs are out, as far as its formula tells."""

from liger_dev.compiler.expand import row_maximum
from liger_dev.compiler.expand import unbounded
from liger_dev.compiler.ir import Value

_NEVER_NEGATIVE = ("abs", "exp", "exp2", "relu", "sigmoid", "softplus", "sqrt", "norm_root", "rsqrt", "size", "softmax")


def at_most_zero(value: Value) -> bool:
    match value.op:
        case "const":
            return bool(value.attr("value") <= 0)
        case "neg":
            return at_least_zero(value.args[0])
        case "sub":
            a, b = value.args
            return _covers(b, a) or (at_most_zero(a) and at_least_zero(b))
        case "add":
            return all(map(at_most_zero, value.args))
        case "mul" | "div":
            a, b = value.args
            square = value.op == "mul" and a.op == "neg" and a.args[0] is b
            return square or at_most_zero(a) and at_least_zero(b) or at_least_zero(a) and at_most_zero(b)
        case "clamp_max" | "minimum":
            return any(map(at_most_zero, value.args))
        case "where":
            return all(map(at_most_zero, value.args[1:]))
    return value.op == "log_softmax"


def at_least_zero(value: Value) -> bool:
    match value.op:
        case "const":
            return bool(value.attr("value") >= 0)
        case "neg":
            return at_most_zero(value.args[0])
        case "mul":
            a, b = value.args
            return a is b or all(map(at_least_zero, value.args)) or all(map(at_most_zero, value.args))
        case "add" | "div":
            return all(map(at_least_zero, value.args))
        case "clamp_min" | "at_least" | "maximum":
            return any(map(at_least_zero, value.args))
        case "where":
            return all(map(at_least_zero, value.args[1:]))
        case "sum":
            return at_least_zero(value.args[0])
        case "log":  # of a sum that has exp(0) among its terms
            return value.args[0].op == "sum" and _reaches_one(value.args[0])
    return value.op in _NEVER_NEGATIVE


def _reaches_one(total: Value) -> bool:
    """Whether a value is sum(exp(x - max(x)))."""
    inner = total.args[0]
    if inner.op != "exp" or inner.args[0].op != "sub":
        return False
    x, peak = inner.args[0].args[0], row_maximum(inner.args[0].args[1])
    return peak is not None and peak.args[0] is x and set(peak.attr("over")) == set(total.attr("over"))


def _covers(high: Value, low: Value) -> bool:
    """Whether `high` is a maximum of which `low` is one operand."""
    match high.op:
        case "max":
            return high.args[0] is low or _covers(high.args[0], low)
        case "maximum" | "clamp_min" | "at_least":
            return any(arg is low or _covers(arg, low) for arg in high.args)
        case "where":  # 0 in the place of an infinite maximum: the exponential of an infinite number is exact anyway
            return unbounded(high) is not high and _covers(unbounded(high), low)
    return False
