"""Composite values (softmax, log_softmax, logsumexp) in, their stable row-wise form out; runs after autodiff, so that
gradients use the composite's result and not its inside."""

import math

from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value


def expand(graph: Graph) -> None:
    """Rewrites outputs and gradients in place; names move to what replaces the value they were on."""
    done: dict[Value, Value] = {}
    outputs = [replace(output, value=_expand(graph, output.value, done)) for output in graph.outputs]
    gradients = {name: _expand(graph, value, done) for name, value in graph.gradients.items()}
    for old, new in done.items():
        if old is not new and old in graph.names:
            graph.names.setdefault(new, graph.names.pop(old))
    graph.outputs[:] = outputs
    graph.gradients.update(gradients)


def _expand(graph: Graph, value: Value, done: dict[Value, Value]) -> Value:
    if value not in done:
        args = tuple(_expand(graph, arg, done) for arg in value.args)
        done[value] = _rewrite(graph, value, args, done)
    return done[value]


def _total(graph: Graph, value: Value, done: dict[Value, Value]) -> tuple[Value, Value] | None:
    """The largest exponent, and the sum of exponentials above it, of which `value` is the logarithm: of a row, or of
    rows and numbers beside each other. None if there is no row in it."""
    if value.op == "logsumexp":
        peak, log = done[value].args
        return peak, (log.args[2] if log.op == "where" else log).args[0]
    if value.op != "logaddexp":
        return None
    sides = [_total(graph, arg, done) for arg in value.args]
    if not any(sides):
        return None
    pairs = [side or (done[arg], graph.const(1.0)) for side, arg in zip(sides, value.args)]
    highest = graph.make("maximum", *(peak for peak, _ in pairs))
    first, second = (graph.mul(total, graph.make("exp", graph.sub(peak, highest))) for peak, total in pairs)
    if "highest" not in graph.names.values():
        graph.names.setdefault(highest, "highest")
    return highest, graph.add(first, second)


def _rewrite(graph: Graph, value: Value, args: tuple[Value, ...], done: dict[Value, Value]) -> Value:
    """Differences from a logsumexp are taken from the maximum first: the sum of the two loses digits far from zero."""
    if value.op in ("softmax", "log_softmax", "logsumexp"):
        over = value.attr("over")
        peak = graph.make("max", args[0], over=over)
        shifted = graph.sub(args[0], peak)
        exponential = graph.make("exp", shifted)
        total = graph.sum(exponential, over)
        for part, name in ((peak, "row_max"), (shifted, "shifted"), (exponential, "numerator"), (total, "denominator")):
            if name not in graph.names.values():
                graph.names.setdefault(part, name)
        if value.op == "softmax":
            return graph.div(exponential, total)
        if value.op == "log_softmax":
            return graph.sub(shifted, graph.make("log", total))
        logarithm = graph.make("log", total)
        if "infinite" in dict(value.attrs):  # infinity - infinity is NaN, where torch has infinity
            infinite = graph.make("eq", graph.make("abs", peak), graph.const(math.inf))
            logarithm = graph.where(infinite, graph.const(0.0), logarithm)
        lse = graph.add(peak, logarithm)
        if lse not in graph.names and "lse" not in graph.names.values():
            graph.names[lse] = "lse"
        return lse
    if value.op == "exp" and value.args[0].op == "sub" and (parts := _total(graph, value.args[0].args[1], done)):
        peak, total = parts
        x = value.args[0].args[0]
        own, factor = _total(graph, x, done) or (done[x], graph.const(1.0))
        return graph.div(graph.mul(factor, graph.make("exp", graph.sub(own, peak))), total)
    if value.op == "sub" and value.args[1].op == "logaddexp" and (parts := _total(graph, value.args[1], done)):
        peak, total = parts
        return graph.sub(graph.sub(args[0], peak), graph.make("log", total))
    if value.op == "sub" and value.args[1].op == "logsumexp":
        peak, log = args[1].args
        return graph.sub(graph.sub(args[0], peak), log)
    if value.op == "sub" and value.args[0].op == "logsumexp":
        peak, log = args[0].args
        return graph.sub(log, graph.sub(args[1], peak))
    if args == value.args:
        return value
    for quotient, factor in (args, args[::-1]) if value.op == "mul" else ():
        fresh = quotient not in value.args and quotient.op == "div"
        if fresh and factor.axes <= quotient.args[1].axes < quotient.args[0].axes:
            return graph.mul(quotient.args[0], graph.div(factor, quotient.args[1]))  # one division a row
    return graph.make(value.op, *args, axes=value.axes, dtype=value.dtype, **dict(value.attrs))
