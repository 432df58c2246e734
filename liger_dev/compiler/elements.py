"""Elements of a row that are found by their position: read alone, or stored once more with what they alone have."""

from collections.abc import Iterable
from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import is_const
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import address
from liger_dev.compiler.schedule import Correction
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Place
from liger_dev.compiler.schedule import Store


def single_elements(graph: Graph, spec: KernelSpec, roots: Iterable[Value]) -> dict[Value, tuple[Value, Value]]:
    """Sums over a row in which all is 0 but one element of a loaded tensor: that tensor, and the element's position."""
    found: dict[Value, tuple[Value, Value]] = {}
    for value in graph.walk(roots, spec.loads):
        inner = value.args[0] if value.op == "sum" and value not in spec.loads else value
        if spec.layout.flat or inner is value or inner.op != "where" or inner.args[0].op != "eq":
            continue
        column, position = sorted(inner.args[0].args, key=lambda v: v.op != "index")
        tile, zero = inner.args[1:]
        if column.op != "index" or spec.layout.cols != (column.attr("axis"),) or value.attr("over") != spec.layout.cols:
            continue
        if not is_const(zero, 0.0) or tile not in spec.loads or spec.layout.kind(position) != "row":
            continue
        place = spec.loads[tile]
        if address(graph, spec.layout, place.dims, place.slices).text == "rows * n_cols + cols":
            found[value] = tile, position
    return found


def corrected(graph: Graph, spec: KernelSpec) -> KernelSpec:
    """A looped kernel that compares no column with a position: what a gradient has at one element of a row, such as that
    of the label, is stored after the others.

    Cross entropy and its gradient, 8192 rows of 32000 columns on an H200: 0.278 ms, with a comparison an element 0.309.
    """
    stores: list[Store] = []
    corrections: list[Correction] = []
    for store in spec.stores:
        rest, correction = _apart(graph, spec, store)
        stores.append(replace(store, value=rest))
        corrections += [replace(correction, store=stores[-1])] if correction else []
    return replace(spec, stores=tuple(stores), corrections=tuple(corrections))


def _apart(graph: Graph, spec: KernelSpec, store: Store) -> tuple[Value, Correction | None]:
    """What a store leaves in all elements of a row but one, and how that one differs; all of it, if none does."""
    found = _without(graph, spec, store.value) if _plain(graph, spec, store.place) and not store.add else None
    if found is None or spec.layout.kind(found[0]) != "tile":
        return store.value, None
    rest, alone = found
    position = _position(spec, alone)
    there = _at(graph, spec, rest, position) if position else None
    if position is None or there is None:
        return store.value, None
    return rest, Correction(store, position, graph.add(alone.args[1], there))


def _without(graph: Graph, spec: KernelSpec, value: Value) -> tuple[Value, Value] | None:
    """A sum without the one term that is 0 but at one position of a row, and that term."""
    if value.op != "add":
        return None
    for term, rest in (value.args, value.args[::-1]):
        if _position(spec, term) and is_const(term.args[2], 0.0):
            return rest, term
    for part, rest in (value.args, value.args[::-1]):
        found = _without(graph, spec, part)
        if found:
            return graph.add(found[0], rest), found[1]
    return None


def _position(spec: KernelSpec, value: Value) -> Value | None:
    """The one position of a row at which a value is a number of that row."""
    if value.op != "where" or value.args[0].op != "eq" or spec.layout.kind(value.args[1]) == "tile":
        return None
    column, position = sorted(value.args[0].args, key=lambda v: v.op != "index")
    found = column.op == "index" and spec.layout.cols == (column.attr("axis"),)
    return position if found and spec.layout.kind(position) == "row" else None


def _at(graph: Graph, spec: KernelSpec, value: Value, position: Value) -> Value | None:
    """A tile's value at the position of each row; None if it is not made of the row's own elements there alone."""
    if not value.axes & set(spec.layout.cols):
        return value
    cols = spec.layout.cols
    if value in spec.loads:
        if spec.layout.kind(value) != "tile" or not _plain(graph, spec, spec.loads[value]):
            return None
        column = graph.make("index", axes=frozenset(cols), dtype="int", axis=cols[0])
        return graph.sum(graph.where(graph.make("eq", column, position), value, graph.const(0.0)), cols)
    if not value.args or value.op in (*REDUCTIONS, *SCANS):
        return None
    args = [_at(graph, spec, arg, position) for arg in value.args]
    return None if None in args else graph.rebuild(value, [arg for arg in args if arg is not None])


def _plain(graph: Graph, spec: KernelSpec, place: Place) -> bool:
    return address(graph, spec.layout, place.dims, place.slices).text == "rows * n_cols + cols"
