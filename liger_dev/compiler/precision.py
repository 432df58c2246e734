"""Values in, the spelling that is precise enough for them out: a GPU's fast exponential and quotient are not always."""

from collections.abc import Container
from collections.abc import Iterable

from liger_dev.compiler.expand import row_maximum
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.signs import at_most_zero


def triton_text(value: Value) -> str:
    """tl.exp(x) is off by about |x| units in the last place, as x * log2(e) is rounded: that shows where x is large."""
    unbounded = value.op == "exp" and not at_most_zero(value.args[0])
    return "libdevice.exp({0})" if unbounded else OPS[value.op].triton


# Operations, by the argument of which they tell the smallest numbers from 0.
_TELL_FROM_ZERO = {"div": 1, "pow": 0} | dict.fromkeys(
    ("log", "log2", "log10", "logaddexp", "xlogy", "rsqrt", "sqrt"), 0
)


def flushed_exponentials(graph: Graph, values: Iterable[Value]) -> frozenset[Value]:
    """The exponentials of a row that is shifted by its maximum, or by the logarithm of its sum, which may be 0 where they
    are no normal number: beside exp(0), no sum tells. A logarithm or a quotient of one itself would tell."""
    shifted = [v for v in values if v.op == "exp" and _is_shifted(v.args[0])]
    if not shifted:
        return frozenset()
    everything = graph.walk([*(o.value for o in graph.outputs), *graph.gradients.values()])
    reduced = [v for v in everything if v.op in REDUCTIONS]
    told = [v.args[_TELL_FROM_ZERO[v.op]] for v in everything if v.op in _TELL_FROM_ZERO]
    told += [arg for v in everything if v.op in ("logaddexp", "xlogy", "max", "argmax") for arg in v.args]
    return frozenset(shifted) - {*graph.walk(told, reduced)}


def _is_shifted(row: Value) -> bool:
    if row.op != "sub":
        return row.op == "log_softmax"
    return row_maximum(row.args[1]) is not None or row.args[1].op == "log" and _is_shifted(row.args[0])


def mean_below_root(root: Value) -> Value | None:
    """The mean that a standard deviation is taken around. In a row of equal numbers it has to be that very number: what
    a quotient of less precision leaves is the whole deviation then, and decides where the gradient is 0."""
    if root.op not in ("sqrt", "norm_root") or root.args[0].op != "div" or root.args[0].args[0].op != "sum":
        return None
    square = root.args[0].args[0].args[0]
    if square.op != "mul" or square.args[0] is not square.args[1] or square.args[0].op != "sub":
        return None
    mean = square.args[0].args[1]
    return mean if mean.op == "div" and mean.args[1].op == "size" else None


def exact_quotients(graph: Graph, values: Iterable[Value]) -> frozenset[Value]:
    """The quotients that must be rounded correctly, since errors that many of them share would not cancel."""
    sought = {arg for v in graph.walk(graph.gradients.values()) if v.op == "eq" for arg in v.args if arg.op == "max"}
    found = set()
    for value in values:
        found.add(mean_below_root(value))
        if value.op == "div" and value.args[0].op == "exp" and value.args[0].args[0].op == "sub":
            # Shares of a row whose gradient reaches the maximum as well, as what is left of a sum over all shares.
            shift = value.args[0].args[0].args[1]
            found.add(value if sought & set(graph.walk([shift])) else None)
    return frozenset(value for value in found if value is not None)


def rounds_products(values: Iterable[Value], loads: Container[Value]) -> bool:
    """Whether products have to be rounded before anything is added to them: where a row's maximum is taken off again
    what it is the maximum of, in one kernel as in the other, or the largest element is not 0 then."""
    for value in values:
        if (
            value.op == "sub"
            and value not in loads
            and value.axes
            and (row_maximum(value.args[1]) or value.args[1].op == "min")
        ):
            left = [value.args[0]]
            while left:
                term = left.pop()
                if term in loads:
                    continue
                if term.op in ("mul", "div"):
                    return True
                if term.op in ("add", "sub", "where"):
                    left += term.args
    return False
