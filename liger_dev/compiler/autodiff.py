"""A forward graph in, its gradients out, as values of the same graph: reverse mode over the adjoints of `ops.OPS`.

An adjoint may lack axes of the value it belongs to (it is then constant over them), so no expand ever appears. Where
an operand has fewer axes than the result, its gradient is the sum over the axes it lacks. An input that is read in
slices has a gradient for each slice.
"""

from collections.abc import Iterable

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.moves import came_back
from liger_dev.compiler.moves import is_moved
from liger_dev.compiler.moves import overlap
from liger_dev.compiler.naming import unique
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.shift import is_shift
from liger_dev.compiler.slices import output_slices
from liger_dev.errors import Unsupported


def differentiate(graph: Graph, wanted: Iterable[str]) -> None:
    """Fills `graph.gradients` for the wanted inputs; the gradient of output `y` is a new leaf `dy`.

    Raises:
        Unsupported: an operation on the path has no adjoint; the value's source line is named.
    """
    adjoints: dict[Value, Value] = {}
    roots = []
    for output in graph.outputs:
        pieces = output_slices(output)
        for i, (slices, value) in enumerate(pieces):
            if value.dtype != "float":
                continue
            seed = graph.input(f"d{output.name}", value.axes, "float", slices)
            graph.names[seed] = f"d{output.name}_{i}" if slices else f"d{output.name}"
            _accumulate(graph, adjoints, value, seed)
            roots.append(value)
    values = graph.walk(roots)
    for value in reversed(values):
        gradient = adjoints.get(value)
        if gradient is None or (value.op == "max" and is_shift(graph, value, gradient)):
            continue
        _label(graph, gradient, value)
        for arg, part in zip(value.args, _adjoint(graph, value, gradient)):
            if part is not None and arg.dtype == "float":
                over = value.axes - arg.axes
                _accumulate(graph, adjoints, arg, graph.sum(part, over) if over else part)
    leaves = [v for v in values if v.op == "input"]
    for name in wanted:
        own = [v for v in leaves if v.attr("name") == name and v.attr("name") in {i.name for i in graph.inputs}]
        own.sort(key=lambda v: v.index)
        if any(piece.at for leaf in own for _, piece in leaf.attr("slices")):
            _look_up(graph, name, own, adjoints)
            continue
        if overlap(graph, [leaf.attr("slices") for leaf in own]):
            graph.gradients[name, ()] = _came_back(graph, own, adjoints)
            continue
        for leaf in own:
            graph.gradients[name, leaf.attr("slices")] = adjoints.get(leaf, graph.const(0.0))
        if not own:
            graph.gradients[name, ()] = graph.const(0.0)


def _look_up(graph: Graph, name: str, leaves: list[Value], adjoints: dict[Value, Value]) -> None:
    """The gradient of the rows that are read, which each index adds to its own row of the table."""
    cuts = [leaf.attr("slices") for leaf in leaves]
    counted = [Slice.counted(cut) if any(piece.at for _, piece in cut) else None for cut in cuts]
    parts = [tuple(one for one in cut if not one[1].at) for cut in cuts]
    if None in counted or len(set(counted)) > 1 or len(leaves) > 1 and ((), overlap(graph, parts)) != ((), False):
        raise Unsupported(f"{name} is read by an index and in other ways", name)
    for leaf in leaves:
        graph.gradients[name, leaf.attr("slices")] = adjoints.get(leaf, graph.const(0.0))


def _came_back(graph: Graph, leaves: list[Value], adjoints: dict[Value, Value]) -> Value:
    total = graph.const(0.0)
    for leaf in leaves:
        if leaf in adjoints:
            total = graph.add(total, came_back(graph, leaf, adjoints[leaf]))
    _name_reads(graph, graph.walk([total]))
    return total


def _name_reads(graph: Graph, values: Iterable[Value]) -> None:
    """Names for tensors that are read at other positions: `dy_next` for `dy[i + 1]`."""
    for value in values:
        if value.op == "input" and value not in graph.names and is_moved(graph, value.attr("slices")):
            words = [_read_name(piece) for _, piece in value.attr("slices")]
            graph.names[value] = unique("_".join([value.attr("name"), *words]), set(graph.names.values()))


def _read_name(piece: Slice) -> str:
    if piece.reversed:
        return "reversed"
    number = abs(piece.first)
    return ("next" if piece.first > 0 else "previous" if piece.first < 0 else "here") + (f"_{number}" * (number > 1))


def leaf_names(graph: Graph) -> None:
    """A name for each slice of an input: the reference's own, or the input's with a number."""
    _name_reads(graph, graph.walk(o.value for o in graph.outputs))
    taken = set(graph.names.values())
    count: dict[str, int] = {}
    for value in graph.walk(o.value for o in graph.outputs):
        if value.op == "input" and value.attr("slices"):
            base = value.attr("name")
            number = count[base] = count.get(base, -1) + 1
            if value not in graph.names:
                graph.names[value] = f"{base}_{number}" if f"{base}_{number}" not in taken else f"{base}_slice_{number}"


def name_gradients(graph: Graph) -> None:
    """Names each gradient `d` + its input (or slice); inputs that share a gradient: the first one names it."""
    for (name, slices), gradient in reversed(graph.gradients.items()):
        if gradient.op in ("const", "input"):
            continue
        leaf = graph.input(name, _axes(graph, name, slices), "float", slices)
        wanted = f"d{graph.names.get(leaf, name)}"
        for other in [v for v, n in graph.names.items() if n == wanted]:
            del graph.names[other]
        graph.names[gradient] = wanted


def _axes(graph: Graph, name: str, slices: object) -> set[str]:
    cut = dict(slices)  # type: ignore[call-overload]
    dims = graph.dims_of(name)
    return {axis for i, dim in enumerate(dims) for axis in (cut[i].axes if i in cut else dim)}


def _adjoint(graph: Graph, value: Value, gradient: Value) -> list[Value | None]:
    rule = OPS[value.op].adjoint
    if rule is None:
        raise Unsupported(
            f"{value.op} has no gradient rule", graph.line_of(value), "detach it where no gradient is wanted"
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
