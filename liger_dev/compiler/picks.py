"""What a graph picks elements by in, the statements that refuse indices outside of the axis that they pick from out."""

from collections.abc import Collection
from dataclasses import dataclass

from liger_dev.compiler.host_values import HostValues
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.naming import unique
from liger_dev.compiler.shapes import Shapes


@dataclass(frozen=True)
class Picked:
    """An input of integers that picks along an axis; those that are not `kept` (a condition, None for all) pick nothing
    there. `mark` is the scalar that they equal, if that is the condition."""

    name: str
    axis: str
    kept: Value | None = None
    mark: str = ""


def picked(graph: Graph) -> list[Picked]:
    """The inputs that pick elements, where what is picked by is such an input but for those that are left out; once where
    one pick leaves out what another does not."""
    found = [one for index, axis in graph.picks if (one := _picked(graph, index, axis)) is not None]
    whole = {(one.name, one.axis) for one in found if one.kept is None}
    return list(dict.fromkeys(one for one in found if one.kept is None or (one.name, one.axis) not in whole))


def _picked(graph: Graph, index: Value, axis: str) -> Picked | None:
    if _whole(index):
        return Picked(index.attr("name"), axis)
    if index.op != "where" or not _whole(index.args[1]) or index.args[2].op != "const":
        return None
    kept, inner, _ = index.args
    dims = {item.name: item.dims for item in graph.inputs}
    read = [value for value in graph.walk([kept]) if value.op == "input"]
    # The wrapper spells the condition with the inputs as they come: whole ones of one shape.
    if not all(_whole(value) and dims[value.attr("name")] == dims[inner.attr("name")] for value in read):
        return None
    marked = kept.op == "ne" and kept.args[0] is inner and kept.args[1].op == "param"
    return Picked(inner.attr("name"), axis, kept, kept.args[1].attr("name") if marked else "")


def _whole(value: Value) -> bool:
    return value.op == "input" and not value.attr("slices")


def index_checks(graph: Graph, shapes: Shapes, needed: Collection[Value], known: dict[Value, str]) -> list[str]:
    """The statements that refuse indices outside of the axis that they pick from. Conditions that are `needed` again get
    a name, which `known` collects."""
    lines = []
    for one in picked(graph):
        kept = ""
        if one.kept is not None:
            kept = HostValues(graph, shapes, frozenset(), {}, {}, known).spell(one.kept)[0]
            if one.kept in needed and one.kept not in known:
                taken = {*(item.name for item in graph.inputs), *known.values()}
                known[one.kept] = unique(graph.names.get(one.kept, "kept"), taken)
                lines.append(f"{known[one.kept]} = {kept}")
            kept = f", {known.get(one.kept, kept)}"
        lines.append(f'check_index("{one.name}", {one.name}, {shapes.axis(one.axis)}{kept})')
    return lines
