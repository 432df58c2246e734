"""Optional inputs: finds the number that each one stands for when it is None, so that one kernel serves both cases."""

from collections.abc import Callable
from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.errors import Unsupported


class NoNeutral(Unsupported):
    """No number can be loaded in the place of the optional input `where`."""


def find_neutrals(graph: Graph, without: Callable[[str], list[Output]]) -> None:
    """Fills `neutral` of the graph's optional inputs.

    `without(name)` lowers the reference with that input None into the same graph. If the outputs are then the very
    values that come out when the input is replaced by 1 or by 0, that number can be loaded in its place.

    Raises:
        NoNeutral: neither 1 nor 0 gives what the reference computes without the input, or that can't be compiled.
    """
    for i, item in enumerate(graph.inputs):
        if not item.optional:
            continue
        try:
            target = [output.value for output in without(item.name)]
        except Unsupported as refusal:
            raise NoNeutral(refusal.what, item.name, refusal.todo) from refusal
        for number in (1.0, 0.0):
            found = [substitute(graph, o.value, item.value, graph.const(number)) for o in graph.outputs]
            if found == target or found == [_weighted(graph, value) for value in target]:
                graph.inputs[i] = replace(item, neutral=number)
                break
        else:
            raise NoNeutral(
                f"without {item.name} the reference computes something that no factor 1 or term 0 stands for",
                item.name,
                "give the variant without it a name of its own",
            )


def _weighted(graph: Graph, value: Value) -> Value:
    """`value` with the binary cross entropy spelled as it is where positives have a weight."""
    for loss in graph.walk([value]):
        if loss.op == "binary_cross_entropy_with_logits":
            x, target = loss.args
            rest = graph.mul(graph.sub(graph.const(1.0), target), x)
            value = substitute(graph, value, loss, graph.add(rest, graph.make("softplus", graph.neg(x))))
    return value


def substitute(graph: Graph, value: Value, old: Value, new: Value) -> Value:
    """`value` with `old` replaced by `new`, identities applied on the way."""
    done = {old: new}

    def visit(current: Value) -> Value:
        if current not in done:
            args = [visit(arg) for arg in current.args]
            done[current] = current if tuple(args) == current.args else _rebuild(graph, current, args)
        return done[current]

    return visit(value)


def _rebuild(graph: Graph, value: Value, args: list[Value]) -> Value:
    match value.op:
        case "add" | "sub" | "mul" | "div" | "neg" | "where":
            return getattr(graph, value.op)(*args)  # type: ignore[no-any-return]
        case "round" if args[0].op == "input":
            return args[0]
        case "detach" if args[0].op == "const":
            return args[0]
        case "sum":
            return graph.sum(args[0], value.attr("over"))
    return graph.make(value.op, *args, dtype=value.dtype, **dict(value.attrs))
