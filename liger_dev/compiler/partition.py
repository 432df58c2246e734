"""A differentiated graph in, a Plan out: which axes are rows and columns, and what forward saves for backward."""

from collections.abc import Iterable
from dataclasses import dataclass

from liger_dev.compiler.ir import Axes
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.errors import ProfileRefused
from liger_dev.errors import Unsupported


@dataclass(frozen=True)
class Layout:
    """How tensors map to programs: `rows` and `cols` are axes in memory order; no rows: one flat run of elements."""

    rows: tuple[str, ...]
    cols: tuple[str, ...]

    @property
    def flat(self) -> bool:
        return not self.rows and not self.cols

    def kind(self, value: Value) -> str:
        """tile, row, col or scalar, by the axes a value varies over."""
        if self.flat:
            return "tile" if value.axes else "scalar"
        has_rows, has_cols = bool(value.axes & set(self.rows)), bool(value.axes & set(self.cols))
        return {(True, True): "tile", (True, False): "row", (False, True): "col", (False, False): "scalar"}[
            has_rows, has_cols
        ]


@dataclass(frozen=True)
class Plan:
    """`saved` are the forward values that backward loads: inputs, outputs and row values; `recomputed` are the named
    ones that it computes again."""

    layout: Layout
    saved: tuple[Value, ...]
    recomputed: tuple[Value, ...]


def partition(graph: Graph, saved: Iterable[str] | None = None) -> Plan:
    """Decides what is saved; `saved` (names) overrides the choice.

    Raises:
        ProfileRefused: backward can't do without a tensor that `saved` leaves out, or a name is unknown.
        Unsupported: the tensors don't fit rows and columns.
    """
    layout = choose_layout(graph)
    wanted = None if saved is None else set(saved)
    choice = _Choice(graph, layout, wanted)
    for gradient in graph.gradients.values():
        choice.visit(gradient)
    if wanted is not None:
        choice.check(wanted)
    needed = graph.walk(graph.gradients.values(), choice.saved)
    order = {item.value: i for i, item in enumerate(graph.inputs)}
    recomputed = [v for v in needed if v in choice.forward and v in graph.names and v not in choice.saved and v.args]
    ranked = sorted(choice.saved, key=lambda v: (order.get(v, len(order)), v.index))
    return Plan(layout, tuple(ranked), tuple(recomputed))


class _Choice:
    """The walk from the gradients down: it stops at what is worth saving."""

    def __init__(self, graph: Graph, layout: Layout, wanted: set[str] | None) -> None:
        self.graph = graph
        self.layout = layout
        self.wanted = wanted
        self.forward = set(graph.walk(output.value for output in graph.outputs))
        self.outputs = {output.value for output in graph.outputs}
        self.saved: dict[Value, None] = {}
        self.seen: set[Value] = set()

    def visit(self, value: Value) -> None:
        if value in self.seen or value in self.saved:
            return
        self.seen.add(value)
        if value in self.forward and value.axes | ({""} if value.op == "input" else set()) and self.keeps(value):
            self.saved[value] = None
            return
        for arg in value.args:
            self.visit(arg)

    def keeps(self, value: Value) -> bool:
        if value.op == "input":
            return True
        if self.wanted is not None:
            return self.graph.names.get(value) in self.wanted
        below = self.graph.walk([value])
        if self.layout.kind(value) == "tile" and value in self.outputs:
            tiles = [v for v in below if v.op == "input" and self.layout.kind(v) == "tile"]
            return len(tiles) > 1 or any(v.op == "max" for v in below)
        from_tile = any(self.layout.kind(v) == "tile" for v in below)
        return (
            self.layout.kind(value) == "row" and from_tile and (value in self.graph.names or value.op in ("sum", "max"))
        )

    def check(self, wanted: set[str]) -> None:
        chosen = {self.graph.names.get(v, "") for v in self.saved}
        known = {name for v, name in self.graph.names.items() if v in self.forward}
        for name in sorted(wanted - known):
            raise ProfileRefused(
                f"'{name}' is no value of forward", "backward_saved_tensors", f"choose among {', '.join(sorted(known))}"
            )
        for name in sorted(chosen - wanted):
            raise ProfileRefused(
                f"backward needs '{name}', which can't be computed again", "backward_saved_tensors", "save it"
            )
        for name in sorted(wanted - chosen):
            raise ProfileRefused(f"backward does not use '{name}'", "backward_saved_tensors", "leave it out")


def choose_layout(graph: Graph) -> Layout:
    """Rows and columns from the reductions and from where the widest tensors keep their axes.

    Raises:
        Unsupported: a reduction over other than the last axis, or tensors whose axes do not line up with it.
    """
    forward = graph.walk(output.value for output in graph.outputs)
    widest = max((v.axes for v in forward), key=len, default=frozenset())
    tensors: list[Input | Output] = [*graph.outputs, *graph.inputs]
    shapes = [tensor.dims for tensor in tensors]
    full = next((tuple(d for d in dims if d) for dims in shapes if {d for d in dims if d} == set(widest)), ())
    if not full:
        raise Unsupported("no input or output has all axes of the computation", _names(graph), "")
    reduced: Axes = frozenset().union(*(v.attr("over") for v in forward if v.op in ("sum", "max")))
    partial = [v for v in forward if v.op == "input" and v.axes and v.axes != widest]
    if not reduced and not partial and all(_line_up(dims, full) for dims in shapes):
        return Layout((), ())
    cols = full[-1:]
    if reduced - set(cols):
        raise Unsupported(
            f"a reduction over {', '.join(sorted(reduced))}: only the last axis, {cols[0]}, can be reduced yet",
            _names(graph),
        )
    layout = Layout(full[:-1], cols)
    for tensor in tensors:
        axes = tuple(d for d in tensor.dims if d)
        if axes not in ((), full, full[:-1], cols):
            raise Unsupported(
                f"{tensor.name} varies over {', '.join(axes)}: broadcasting other than rows, columns and scalars "
                f"of ({', '.join(full)}) is not expressible yet",
                _names(graph),
            )
    return layout


def _line_up(dims: tuple[str | None, ...], full: tuple[str, ...]) -> bool:
    return tuple(d for d in dims if d) in ((), full)


def _names(graph: Graph) -> str:
    return f"inputs {', '.join(item.name for item in graph.inputs)}"
