"""A differentiated graph in, a Plan out: what forward saves for backward, and what is summed outside of kernels."""

from collections.abc import Collection
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import along
from liger_dev.compiler.layout import memory_order
from liger_dev.compiler.layout import split_reductions
from liger_dev.compiler.naming import name_in_two_steps
from liger_dev.compiler.sections import reduce_by_sections
from liger_dev.compiler.sections import section_axes
from liger_dev.compiler.slices import pieces_of
from liger_dev.compiler.staging import Staging
from liger_dev.compiler.staging import stage
from liger_dev.errors import ProfileRefused

# What the wrapper may compute from sums over rows: the rest is left to kernels.
_ON_HOST = ("add", "sub", "mul", "div", "neg", "clamp_min", "clamp_max", "round", "detach")


@dataclass(frozen=True)
class Fused:
    """Gradients that forward's kernel makes: for an upstream gradient of 1 where `upstream` is not given to it. `totals`
    are the sums over rows that they need, which the wrapper computes first."""

    upstream: Value
    totals: tuple[Value, ...]


@dataclass(frozen=True)
class Plan:
    """`cols` are the axes that reductions inside a row go over. `host` are forward values that the wrapper computes
    from rows, `kept` what a launch of forward stores for later ones. `saved` are the forward values that backward
    loads; `recomputed` are the named ones that it computes again. `fused`: backward only scales what forward has made."""

    cols: frozenset[str]
    host: frozenset[Value]
    staging: Staging
    saved: tuple[Value, ...]
    recomputed: tuple[Value, ...]
    fused: Fused | None = None

    @property
    def kept(self) -> tuple[Value, ...]:
        return self.staging.kept


def partition(graph: Graph, saved: Iterable[str] | None = None) -> Plan:
    """Decides what is saved; `saved` (names) overrides the choice. Sums over rows and columns are split in two.

    Raises:
        ProfileRefused: backward can't do without a tensor that `saved` leaves out, or a name is unknown.
    """
    cols = _columns(graph)
    section = section_axes(graph, cols)
    if section:
        reduce_by_sections(graph, section)
        cols = section
    _split(graph, cols)
    outputs = [value for output in graph.outputs for value in pieces_of(output)]
    totals = row_totals(graph, outputs, (), cols)
    host = _host_values(graph, totals)
    staging = stage(graph, outputs, (), totals)
    wanted = None if saved is None else set(saved)
    choice = _Choice(graph, cols, host, staging.kept, wanted)
    for gradient in graph.gradients.values():
        choice.visit(gradient)
    for index in _indices(graph, [*choice.saved]):
        choice.saved[index] = None
    if wanted is not None:
        choice.check(wanted)
    needed = graph.walk(graph.gradients.values(), choice.saved)
    order = {item.name: i for i, item in enumerate(graph.inputs)}
    recomputed = [v for v in needed if v in choice.forward and v in graph.names and v not in choice.saved and v.args]
    staging = stage(graph, outputs, (), totals, [v for v in choice.saved if v.args and v not in outputs])
    _name_totals(graph, outputs, staging, host)
    ranked = sorted(choice.saved, key=lambda v: (order[v.attr("name")] if v.op == "input" else len(order), v.index))
    return Plan(cols, host, staging, tuple(ranked), tuple(recomputed))


def _indices(graph: Graph, saved: list[Value]) -> list[Value]:
    """The inputs that count the rows of tables, where backward reads these rows or adds to them."""
    cuts = [value.attr("slices") for value in saved if value.op == "input"] + [cut for _, cut in graph.gradients]
    names = {piece.at for cut in cuts for _, piece in cut if piece.at}
    return [item.value for item in graph.inputs if item.name in names]


def _columns(graph: Graph) -> frozenset[str]:
    """The axes that forward's smallest reduction of whole tensors goes over; the last axis, if that is a sum over
    everything."""
    forward = graph.walk(output.value for output in graph.outputs)
    running = [along(v) for v in forward if v.op in SCANS]
    if running:
        return running[0]
    reductions = [v for v in forward if v.op in REDUCTIONS]
    if not reductions:
        return frozenset()
    if not any(output.value.axes for output in graph.outputs) and all(
        v.op == "sum" and frozenset(v.attr("over")) == v.args[0].axes and len(v.args[0].axes) == 1 for v in reductions
    ):
        return frozenset()  # totals of elements: kernels store the elements, the wrapper adds them up
    inner = [v for v in reductions if not any(r in reductions for r in graph.walk(v.args))]
    smallest = min(inner, key=lambda v: (-len(v.args[0].axes), len(v.attr("over")), v.index))
    cols = frozenset(smallest.attr("over"))
    operand = smallest.args[0]
    if cols == operand.axes and len(cols) > 1:
        return frozenset(memory_order(graph, cols)[-1:])
    return cols


def _split(graph: Graph, cols: frozenset[str]) -> None:
    done: dict[Value, Value] = {}
    graph.outputs[:] = [replace(o, value=split_reductions(graph, o.value, cols, done)) for o in graph.outputs]
    graph.gradients.update({key: split_reductions(graph, value, cols, done) for key, value in graph.gradients.items()})


def row_totals(
    graph: Graph, roots: Iterable[Value], loads: Collection[Value], cols: frozenset[str]
) -> frozenset[Value]:
    """The sums of all rows: a kernel stores the rows, the wrapper adds them up."""
    return frozenset(
        v
        for v in graph.walk(roots, loads)
        if v.op == "sum" and v not in loads and not v.axes and v.args[0].args and not v.args[0].axes & cols
    )


def _host_values(graph: Graph, totals: frozenset[Value]) -> frozenset[Value]:
    """The totals, and the outputs that plain arithmetic makes of them."""
    host = set(totals)
    for output in graph.outputs:
        above = [v for v in graph.walk([output.value], totals) if v not in totals and v.args]
        plain = all(v.op in _ON_HOST for v in above) and all(
            v in totals or v.op in ("const", "param", "size")
            for v in graph.walk([output.value], totals)
            if v not in above
        )
        if plain and any(v in totals for v in graph.walk([output.value], totals)):
            # What sizes and scalars alone make is a number, which kernels work out for themselves.
            host.update(v for v in above if any(below in totals for below in graph.walk([v], totals)))
    return frozenset(host)


def _name_totals(graph: Graph, outputs: list[Value], staging: Staging, host: frozenset[Value]) -> None:
    """Names the sums and maxima over everything that kernels load."""
    values = graph.walk(outputs)
    loaded = {arg for v in values if v not in host for arg in v.args if arg in staging.totals or arg in staging.kept}
    for value in values:
        if value in loaded and (value in staging.totals or value.op == "max" == value.args[0].op):
            name_in_two_steps(graph, value)


class _Choice:
    """The walk from the gradients down: it stops at what is worth saving."""

    def __init__(
        self,
        graph: Graph,
        cols: frozenset[str],
        host: frozenset[Value],
        kept: Collection[Value],
        wanted: set[str] | None,
    ) -> None:
        self.graph = graph
        self.cols = cols
        self.host = host
        self.kept = kept
        self.wanted = wanted
        self.forward = set(graph.walk(output.value for output in graph.outputs))
        self.inputs = {item.name for item in graph.inputs}
        self.outputs = {output.value for output in graph.outputs}
        floats = {item.name for item in graph.inputs if item.value.dtype == "float"}
        # Rounded as they are stored, while eager's backward has what was not, or the gradients of other inputs are wider.
        self.narrow = {
            o.value
            for o in graph.outputs
            if o.cast_down or o.value.op != "round" and o.dtype_of and not floats <= set(o.dtype_of)
        }
        self.delicate = self.summed_with_corrections()
        self.saved: dict[Value, None] = {}
        self.seen: set[Value] = set()

    def summed_with_corrections(self) -> set[Value]:
        """Forward values below a gradient that sums differences to a row's mean over rows: there what an output lost
        when it was rounded would not cancel."""
        found: set[Value] = set()
        for gradient in self.graph.gradients.values():
            values = self.graph.walk(gradient.args)
            if gradient.op == "sum" and any(
                v.op == "sum" and v is not gradient.args[0] and v not in self.forward for v in values
            ):
                found.update(v for v in values if v in self.forward)
        return found

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
        if value in self.kept:
            return True
        if not value.axes:
            return value.op in REDUCTIONS
        if self.wanted is not None:
            return self.graph.names.get(value) in self.wanted
        below = self.graph.walk([value])
        if value.axes & self.cols or not self.cols:
            if value not in self.outputs:
                return False
            tiles = [v for v in below if v.op == "input" and v.axes == value.axes]
            worth = bool(self.cols) and (len(tiles) > 1 or any(v.op == "max" for v in below))
            return worth and value not in self.delicate and value not in self.narrow
        reduced = any(v.op in REDUCTIONS for v in below) and value not in self.narrow
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
