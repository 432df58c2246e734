"""Names for values that the reference left unnamed, from what they compute."""

from collections.abc import Mapping

from liger_dev.compiler.expand import row_maximum
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import is_const

_BY_OP = {
    "exp": "exponential",
    "log": "logarithm",
    "rsqrt": "rstd",
    "sqrt": "root",
    "sigmoid": "sigmoid",
    "relu": "positive",
    "max": "row_max",
    "logaddexp": "log_total",
    "argmax": "position",
    "kth_largest": "threshold",
    "simplex_threshold": "threshold",
    "where": "selected",
    "add": "shifted",
    "sub": "difference",
    "mul": "product",
    "div": "ratio",
    "neg": "negated",
    "cumsum": "running",
    "cumprod": "running_product",
    "abs": "magnitude",
    "round": "rounded",
    "rint": "rounded",
    "trunc": "whole",
    "int": "whole",
    "float": "number",
    "norm_root": "norm",
    "clamp_min": "clamped",
    "clamp_max": "clamped",
    "pow": "power",
    "mod": "rest",
    "fmod": "rest",
    "bitand": "bits",
    "bitor": "bits",
    "binary_cross_entropy": "loss",
}


def suggest(value: Value, names: Mapping[Value, str]) -> str:
    """A name for a value, in the words of its arguments' names where they have some."""
    args = [names.get(arg, "") for arg in value.args]
    match value.op:
        case "sum":
            inner = value.args[0]
            if inner in names:
                return f"sum_{names[inner]}"
            if inner.op == "mul" and inner.args[0] is inner.args[1]:
                return "sum_of_squares"
            return "dot" if inner.op == "mul" else "total"
        case "div" if value.args[0].op == "sum" and value.args[1].op == "size":
            inner = value.args[0].args[0]
            if inner in names:
                return f"mean_{names[inner]}"
            if inner.op == "mul":
                return "mean_square" if inner.args[0] is inner.args[1] else "mean_dot"
            return "mean"
        case "mul" if value.args[0] is value.args[1] and args[0]:
            return f"{args[0]}_squared"
        case "sub" if is_const(value.args[0], 1) and args[1]:
            return f"one_minus_{args[1]}"
        case "add" if is_const(value.args[0], 1) and args[1]:
            return f"one_plus_{args[1]}"
        case "neg" if args[0]:
            return f"minus_{args[0]}"
        case "round" if args[0]:
            return f"{args[0]}_rounded"
        case "where" if row_maximum(value):
            return "row_shift"
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "and" | "or" | "not":
            return "condition"
    return _BY_OP.get(value.op, value.op)


def name_in_two_steps(graph: Graph, value: Value) -> None:
    """Names a sum or maximum over everything, and the one of each row that it is taken of: `dot` and `row_dot`."""
    inner, names = value.args[0], graph.names
    twice = inner.op == value.op
    if twice and names.get(value, "").startswith("row_"):
        names.setdefault(inner, names.pop(value))
    if value not in names:
        plain = "largest" if value.op == "max" else suggest(inner if twice else value, names)
        names[value] = unique(plain, set(names.values()))
    if twice and inner not in names:
        names[inner] = unique(f"row_{names[value]}", set(names.values()))


def unique(name: str, taken: set[str]) -> str:
    """`name`, or with a number behind it if it is taken."""
    if name not in taken:
        return name
    return next(f"{name}_{i}" for i in range(2, 1000) if f"{name}_{i}" not in taken)
