"""A differentiated graph in, a Plan out: what forward saves for backward, and what is summed outside of kernels."""

from collections.abc import Iterable
from dataclasses import dataclass

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import along
from liger_dev.compiler.layout import memory_order
from liger_dev.compiler.layout import split_sums
from liger_dev.errors import ProfileRefused
from liger_dev.errors import Unsupported


@dataclass(frozen=True)
class Fused:
    """Gradients that forward's kernel makes: for an upstream gradient of 1 where `upstream` is not given to it. `totals`
    are the sums over rows that they need, which the wrapper computes first."""

    upstream: Value
    totals: tuple[Value, ...]


@dataclass(frozen=True)
class Plan:
    """`cols` are the axes that reductions inside a row go over. `host` are forward values that the wrapper computes
    from rows. `saved` are the forward values that backward loads; `recomputed` are the named ones that it computes
    again. `fused`: backward only scales what forward has made."""

    cols: frozenset[str]
    host: frozenset[Value]
    saved: tuple[Value, ...]
    recomputed: tuple[Value, ...]
    fused: Fused | None = None


def partition(graph: Graph, saved: Iterable[str] | None = None) -> Plan:
    """Decides what is saved; `saved` (names) overrides the choice. Sums over rows and columns are split in two.

    Raises:
        ProfileRefused: backward can't do without a tensor that `saved` leaves out, or a name is unknown.
        Unsupported: reductions go over different axes, or a row depends on a sum over rows.
    """
    cols = _columns(graph)
    _split(graph, cols)
    host = _host_values(graph, cols)
    wanted = None if saved is None else set(saved)
    choice = _Choice(graph, cols, host, wanted)
    for gradient in graph.gradients.values():
        choice.visit(gradient)
    for index in _indices(graph, [*choice.saved]):
        choice.saved[index] = None
    if wanted is not None:
        choice.check(wanted)
    needed = graph.walk(graph.gradients.values(), choice.saved)
    order = {item.name: i for i, item in enumerate(graph.inputs)}
    recomputed = [v for v in needed if v in choice.forward and v in graph.names and v not in choice.saved and v.args]
    ranked = sorted(choice.saved, key=lambda v: (order[v.attr("name")] if v.op == "input" else len(order), v.index))
    return Plan(cols, host, tuple(ranked), tuple(recomputed))


def _indices(graph: Graph, saved: list[Value]) -> list[Value]:
    """The inputs that count the rows of tables, where backward reads these rows or adds to them."""
    cuts = [value.attr("slices") for value in saved if value.op == "input"] + [cut for _, cut in graph.gradients]
    names = {piece.at for cut in cuts for _, piece in cut if piece.at}
    return [item.value for item in graph.inputs if item.name in names]


def _columns(graph: Graph) -> frozenset[str]:
    """The axes that forward's smallest reduction goes over; the last axis, if that is a sum over everything."""
    forward = graph.walk(output.value for output in graph.outputs)
    running = [along(v) for v in forward if v.op in SCANS]
    if running:
        return running[0]
    reductions = [v for v in forward if v.op in REDUCTIONS]
    if not reductions:
        return frozenset()
    if all(
        v.op == "sum" and frozenset(v.attr("over")) == v.args[0].axes and len(v.args[0].axes) == 1 for v in reductions
    ):
        return frozenset()  # totals of elements: kernels store the elements, the wrapper adds them up
    smallest = min(reductions, key=lambda v: (len(v.attr("over")), v.index))
    cols = frozenset(smallest.attr("over"))
    operand = smallest.args[0]
    if cols == operand.axes and len(cols) > 1:
        return frozenset(memory_order(graph, cols)[-1:])
    return cols


def _split(graph: Graph, cols: frozenset[str]) -> None:
    done: dict[Value, Value] = {}
    graph.outputs[:] = [
        Output(o.name, split_sums(graph, o.value, cols, done), o.dims, o.dtype_of) for o in graph.outputs
    ]
    graph.gradients.update({key: split_sums(graph, value, cols, done) for key, value in graph.gradients.items()})


def _host_values(graph: Graph, cols: frozenset[str]) -> frozenset[Value]:
    """Forward values that are sums over rows, or made of such sums."""
    host: set[Value] = set()
    for value in graph.walk(output.value for output in graph.outputs):
        outer = value.op in REDUCTIONS and not set(value.attr("over")) & cols
        if outer and value.op != "sum":
            raise Unsupported(f"a {value.op} over rows", graph.lines.get(value, ""), "only sums can be taken over rows")
        if value.op in REDUCTIONS and not outer and frozenset(value.attr("over")) != cols:
            raise Unsupported(
                f"reductions over {', '.join(value.attr('over'))} and over {', '.join(sorted(cols))} in one operation",
                graph.lines.get(value, ""),
            )
        if value.op in SCANS and along(value) != cols:
            raise Unsupported("running sums along several axes", graph.lines.get(value, ""))
        below = [arg for arg in value.args if arg in host]
        if below and (value.axes & cols or any(arg.axes & cols for arg in value.args)):
            raise Unsupported("a row that depends on a sum over all rows", graph.lines.get(value, ""))
        if outer or below:
            host.add(value)
    return frozenset(host)


class _Choice:
    """The walk from the gradients down: it stops at what is worth saving."""

    def __init__(self, graph: Graph, cols: frozenset[str], host: frozenset[Value], wanted: set[str] | None) -> None:
        self.graph = graph
        self.cols = cols
        self.host = host
        self.wanted = wanted
        self.forward = set(graph.walk(output.value for output in graph.outputs))
        self.inputs = {item.name for item in graph.inputs}
        self.outputs = {output.value for output in graph.outputs}
        self.saved: dict[Value, None] = {}
        self.seen: set[Value] = set()

    def visit(self, value: Value) -> None:
        if value in self.seen or value in self.saved:
            return
        self.seen.add(value)
        given = value.op == "input" and value.attr("name") in self.inputs
        if given or value in self.forward and self.keeps(value):
            self.saved[value] = None
            return
        for arg in value.args:
            self.visit(arg)

    def keeps(self, value: Value) -> bool:
        if value.op == "input" or value in self.host:
            return True
        if not value.axes:
            return False
        if self.wanted is not None:
            return self.graph.names.get(value) in self.wanted
        below = self.graph.walk([value])
        if value.axes & self.cols or not self.cols:
            if value not in self.outputs:
                return False
            tiles = [v for v in below if v.op == "input" and v.axes == value.axes]
            return bool(self.cols) and (len(tiles) > 1 or any(v.op == "max" for v in below))
        reduced = any(v.op in REDUCTIONS for v in below)
        return reduced and (value in self.graph.names or value.op in REDUCTIONS)

    def check(self, wanted: set[str]) -> None:
        chosen = {
            self.graph.names.get(v, v.attr("name") if v.op == "input" else "") for v in self.saved if v not in self.host
        }
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
