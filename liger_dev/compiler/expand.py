"""Composite values (softmax, log_softmax, logsumexp) in, their stable row-wise form out; runs after autodiff, so that
gradients use the composite's result and not its inside."""

import math

from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value


def expand(graph: Graph) -> None:
    """Rewrites outputs and gradients in place; names move to what replaces the value they were on."""
    expansion = _Expansion(graph)
    outputs = [replace(output, value=expansion.of(output.value)) for output in graph.outputs]
    gradients = {name: expansion.of(value) for name, value in graph.gradients.items()}
    for old, new in expansion.done.items():
        if old is not new and old in graph.names:
            graph.names.setdefault(new, graph.names.pop(old))
    graph.outputs[:] = outputs
    graph.gradients.update(gradients)


def row_maximum(shift: Value) -> Value | None:
    """The maximum that a row is shifted by: `shift` itself, or what it is the `finite` form of."""
    peak = unbounded(shift)
    return peak if peak.op == "max" else None


def unbounded(shift: Value) -> Value:
    """What `shift` is the `finite` form of, or itself."""
    if shift.op != "where":
        return shift
    told, zero, peak = shift.args
    same = told.op == "eq" and told.args[0].op == "abs" and told.args[0].args[0] is peak
    return peak if same and _is(told.args[1], math.inf) and _is(zero, 0.0) else shift


def finite(graph: Graph, peak: Value) -> Value:
    """What a row whose maximum may be infinite is shifted by: infinity - infinity is NaN, where torch has infinity. Of a
    maximum that has dropped a NaN the sum of exponentials tells."""
    infinite = graph.make("eq", graph.make("abs", peak), graph.const(math.inf))
    return graph.where(infinite, graph.const(0.0), peak)


def _is(value: Value, number: float) -> bool:
    return value.op == "const" and bool(value.attr("value") == number)


class _Expansion:
    """The values of a graph and what becomes of them. `infinite` are the rows that have a logarithm of their sum even if
    it is infinite: what else is made of these rows takes the same sum."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.done: dict[Value, Value] = {}
        values = graph.walk([*(output.value for output in graph.outputs), *graph.gradients.values()])
        self.infinite = {(v.args[0], v.attr("over")) for v in values if "infinite" in dict(v.attrs)}

    def of(self, value: Value) -> Value:
        if value not in self.done:
            self.done[value] = self._rewrite(value, tuple(self.of(arg) for arg in value.args))
        return self.done[value]

    def _total(self, value: Value) -> tuple[Value, Value, Value] | None:
        """The largest exponent, what is taken off the exponents, and the sum of exponentials then, of which `value` is
        the logarithm: of a row, or of rows and numbers beside each other. None if there is no row in it."""
        graph = self.graph
        if value.op == "logsumexp":
            shift, log = self.done[value].args
            return unbounded(shift), shift, log.args[0]
        if value.op != "logaddexp":
            return None
        sides = [self._total(arg) for arg in value.args]
        if not any(sides):
            return None
        joined = dict(value.attrs).get("joined")  # a concatenation's: in torch one sum, whose parts may all be 0
        exponent_of = 0 if joined else 1
        pairs = [
            (side[exponent_of], side[2]) if side else (self.done[arg], graph.const(1.0))
            for side, arg in zip(sides, value.args)
        ]
        highest = graph.make("maximum", *(exponent for exponent, _ in pairs))
        shift = finite(graph, highest) if joined == "sum" else highest
        first, second = (graph.mul(total, graph.make("exp", graph.sub(exponent, shift))) for exponent, total in pairs)
        if "highest" not in graph.names.values():
            graph.names.setdefault(highest, "highest")
        if shift is not highest and "common_shift" not in graph.names.values():
            graph.names.setdefault(shift, "common_shift")
        return highest, shift, graph.add(first, second)

    def _shifted_sum(self, value: Value, x: Value) -> tuple[Value, Value, Value]:
        """What the row `x` of a softmax or its relative is shifted by, its exponentials then, and their sum."""
        graph, over = self.graph, value.attr("over")
        peak = graph.make("max", x, over=over)
        shared = (value.args[0], over) in self.infinite
        shift = finite(graph, peak) if shared else peak
        shifted = graph.sub(x, shift)
        exponential = graph.make("exp", shifted)
        total = graph.sum(exponential, over)
        parts = {peak: "row_max", shifted: "shifted", exponential: "numerator", total: "denominator"}
        if shared:
            parts[shift] = "row_shift"
        for part, name in parts.items():
            if name not in graph.names.values():
                graph.names.setdefault(part, name)
        if shared and "infinite" not in dict(value.attrs):  # infinity less itself is NaN in torch's form of these
            total = graph.where(graph.make("eq", peak, graph.const(math.inf)), graph.const(math.nan), total)
        return shift, exponential, total

    def _rewrite(self, value: Value, args: tuple[Value, ...]) -> Value:
        """Differences from a logsumexp are taken from the maximum first: the sum of the two loses digits far from zero."""
        graph = self.graph
        if value.op in ("softmax", "log_softmax", "logsumexp"):
            shift, exponential, total = self._shifted_sum(value, args[0])
            if value.op == "softmax":
                return graph.div(exponential, total)
            if value.op == "log_softmax":
                return graph.sub(exponential.args[0], graph.make("log", total))
            lse = graph.add(shift, graph.make("log", total))
            if lse not in graph.names and "lse" not in graph.names.values():
                graph.names[lse] = "lse"
            return lse
        if value.op == "exp" and value.args[0].op == "sub" and (parts := self._total(value.args[0].args[1])):
            _, shift, total = parts
            x = value.args[0].args[0]
            own, _, factor = self._total(x) or (self.done[x], None, graph.const(1.0))
            return graph.div(graph.mul(factor, graph.make("exp", graph.sub(own, shift))), total)
        if value.op == "sub" and value.args[1].op == "logaddexp" and (parts := self._total(value.args[1])):
            _, shift, total = parts
            return graph.sub(graph.sub(args[0], shift), graph.make("log", total))
        if value.op == "sub" and value.args[1].op == "logsumexp":
            shift, log = args[1].args
            return graph.sub(graph.sub(args[0], shift), log)
        if value.op == "sub" and value.args[0].op == "logsumexp":
            shift, log = args[0].args
            return graph.sub(log, graph.sub(args[1], shift))
        if args == value.args:
            return value
        for quotient, factor in (args, args[::-1]) if value.op == "mul" else ():
            fresh = quotient not in value.args and quotient.op == "div"
            if fresh and factor.axes <= quotient.args[1].axes < quotient.args[0].axes:
                return graph.mul(quotient.args[0], graph.div(factor, quotient.args[1]))  # one division a row
        return graph.make(value.op, *args, axes=value.axes, dtype=value.dtype, **dict(value.attrs))
