"""A forward graph in, its gradients out, as values of the same graph: reverse mode over the adjoints of `ops.OPS`.

An adjoint may lack axes of the value it belongs to (it is then constant over them), so no expand ever appears. Where
an operand has fewer axes than the result, its gradient is the sum over the axes it lacks.
"""

from collections.abc import Iterable

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.shift import is_shift
from liger_dev.errors import Unsupported


def differentiate(graph: Graph, wanted: Iterable[str]) -> None:
    """Fills `graph.gradients` for the wanted inputs; the gradient of output `y` is a new leaf `dy`.

    Raises:
        Unsupported: an operation on the path has no adjoint; the value's source line is named.
    """
    adjoints: dict[Value, Value] = {}
    for output in graph.outputs:
        seed = graph.make("input", axes=output.value.axes, dtype="float", name=f"d{output.name}")
        graph.names[seed] = f"d{output.name}"
        _accumulate(graph, adjoints, output.value, seed)
    for value in reversed(graph.walk(output.value for output in graph.outputs)):
        gradient = adjoints.get(value)
        if gradient is None or (value.op == "max" and is_shift(graph, value, gradient)):
            continue
        _label(graph, gradient, value)
        for arg, part in zip(value.args, _adjoint(graph, value, gradient)):
            if part is not None and arg.dtype == "float":
                over = value.axes - arg.axes
                _accumulate(graph, adjoints, arg, graph.sum(part, over) if over else part)
    names = set(wanted)
    for item in graph.inputs:
        if item.name in names:
            graph.gradients[item.name] = adjoints.get(item.value, graph.const(0.0))


def name_gradients(graph: Graph) -> None:
    """Names each gradient `d` + its input; inputs that share a gradient: the first one names it."""
    for name, gradient in reversed(graph.gradients.items()):
        if gradient.op not in ("const", "input"):
            for other in [v for v, n in graph.names.items() if n == f"d{name}"]:
                del graph.names[other]
            graph.names[gradient] = f"d{name}"


def _adjoint(graph: Graph, value: Value, gradient: Value) -> list[Value | None]:
    rule = OPS[value.op].adjoint
    if rule is None:
        raise Unsupported(
            f"{value.op} has no gradient rule", graph.lines.get(value, ""), "detach it where no gradient is wanted"
        )
    return rule(graph, value, gradient)


def _accumulate(graph: Graph, adjoints: dict[Value, Value], value: Value, part: Value) -> None:
    adjoints[value] = graph.add(adjoints[value], part) if value in adjoints else part


def _label(graph: Graph, gradient: Value, value: Value) -> None:
    """Names the final gradient of a named value `d` + its name."""
    name = graph.names.get(value)
    taken = set(graph.names.values())
    if name and gradient not in graph.names and gradient.op not in ("const", "input") and f"d{name}" not in taken:
        graph.names[gradient] = f"d{name}"
