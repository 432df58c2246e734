"""Gradients that are made of sums over rows in, the same gradients as one sum each out."""

from liger_dev.compiler.ir import Axes
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import is_const


def absorb_sums(graph: Graph) -> None:
    """Gradients that are made of sums over rows as one sum each: `-sum(a) * c` is `sum(-a * c)`."""
    forward = set(graph.walk(output.value for output in graph.outputs))
    for (name, cut), value in graph.gradients.items():
        gone = _summed_axes(value, forward, value.axes)
        if value.op != "sum" and gone:
            inner = _absorbed(graph, value, gone, forward)
            value = value if inner is None else graph.make("sum", inner, over=tuple(sorted(gone)))
        graph.gradients[name, cut] = _summed_at_once(graph, value, forward) if value.op == "sum" else value


def _summed_at_once(graph: Graph, value: Value, forward: set[Value]) -> Value:
    """A sum of sums as one sum, if what is summed needs reductions that only the kernel of the gradient's rows has."""
    operand = value.args[0]
    gone = _summed_axes(operand, forward, frozenset())
    inner = _absorbed(graph, operand, gone, forward) if gone else None
    if inner is None or not any(v.op == "sum" and v not in forward for v in graph.walk([inner])):
        return value
    return graph.make("sum", inner, over=tuple(sorted({*value.attr("over"), *gone})))


def _summed_axes(value: Value, forward: set[Value], kept: Axes) -> Axes:
    """The axes of the first sum below products, sums and signs, if it goes over what the value does not vary over. A sum
    over `kept` axes, those of the gradient, is one of each row: the first sum is below it."""
    if value in forward:
        return frozenset()
    if value.op == "sum":
        over = frozenset(value.attr("over"))
        return _summed_axes(value.args[0], forward, kept) if over & kept else over
    if value.op in ("mul", "div", "neg", "add", "sub", "where"):
        found = [axes for arg in value.args if (axes := _summed_axes(arg, forward, kept))]
        return (
            found[0] if found and all(axes == found[0] for axes in found) and not found[0] & value.axes else frozenset()
        )
    return frozenset()


def _absorbed(graph: Graph, value: Value, gone: Axes, forward: set[Value]) -> Value | None:
    """What to sum over `gone` so that it gives `value`; None if there is nothing."""
    if value.op == "sum" and frozenset(value.attr("over")) == gone and value not in forward:
        return value.args[0]
    parts = [_absorbed(graph, arg, gone, forward) for arg in value.args]
    match value.op, parts:
        case "neg", [a] if a is not None:
            return graph.neg(a)
        case "sum", [a] if a is not None:
            return graph.sum(a, value.attr("over"))
        case "add" | "sub", [a, b] if a is not None and b is not None:
            return graph.rebuild(value, (a, b))
        case "mul", [a, None] if a is not None:
            return graph.mul(a, value.args[1])
        case "mul", [None, b] if b is not None:
            return graph.mul(value.args[0], b)
        case "div", [a, None] if a is not None:
            return graph.div(a, value.args[1])
        case "where", [None, a, b] if (a or b) and all(p or is_const(v, 0) for p, v in zip((a, b), value.args[1:])):
            return graph.where(value.args[0], a or graph.const(0.0), b or graph.const(0.0))
    return None
