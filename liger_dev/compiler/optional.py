"""Optional inputs: finds the number that each one stands for when it is None, so that one kernel serves both cases."""

from collections.abc import Callable
from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.errors import Unsupported


def find_neutrals(graph: Graph, without: Callable[[str], list[Output]]) -> None:
    """Fills `neutral` of the graph's optional inputs.

    `without(name)` lowers the reference with that input None into the same graph. If the outputs are then the very
    values that come out when the input is replaced by 1 or by 0, that number can be loaded in its place.

    Raises:
        Unsupported: neither 1 nor 0 gives what the reference computes without the input.
    """
    for i, item in enumerate(graph.inputs):
        if not item.optional:
            continue
        target = [output.value for output in without(item.name)]
        for number in (1.0, 0.0):
            if [substitute(graph, o.value, item.value, graph.const(number)) for o in graph.outputs] == target:
                graph.inputs[i] = replace(item, neutral=number)
                break
        else:
            raise Unsupported(
                f"without {item.name} the reference computes something that no factor 1 or term 0 stands for",
                item.name,
                "give the variant without it a name of its own",
            )


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
        case "sum":
            return graph.sum(args[0], value.attr("over"))
    return graph.make(value.op, *args, dtype=value.dtype, **dict(value.attrs))
