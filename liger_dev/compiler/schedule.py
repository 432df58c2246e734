"""A Plan in, the specifications of the kernels out: what each loads, stores and accumulates."""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import Layout
from liger_dev.compiler.layout import along
from liger_dev.compiler.layout import choose_layout
from liger_dev.compiler.layout import footprint
from liger_dev.compiler.layout import memory_order
from liger_dev.compiler.layout import read_axes
from liger_dev.compiler.naming import suggest
from liger_dev.compiler.naming import unique
from liger_dev.compiler.partition import Plan
from liger_dev.compiler.slices import output_slices
from liger_dev.errors import Unsupported


@dataclass(frozen=True)
class Place:
    """Where a value is in memory: a tensor's name and dimensions, and the slice of it. `exact`: kept in float32."""

    name: str
    dims: Dims
    slices: Slices = ()
    exact: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        return read_axes(self.dims, self.slices)


@dataclass(frozen=True)
class Store:
    """A value that a kernel writes, only if the constexpr `guard` holds (empty: always); `add`: to what is there."""

    place: Place
    value: Value
    guard: str = ""
    add: bool = False


@dataclass(frozen=True)
class Accumulator:
    """A sum over rows: each program keeps its part in float32 and writes it to `NAME_partial_ptr`. Their total is the
    gradient `place`, or the slice of it."""

    name: str
    value: Value
    place: Place
    guard: str = ""

    @property
    def operand(self) -> Value:
        """What is added up: a tile or a row; for a total over rows and columns the tile itself."""
        inner = self.value.args[0]
        return inner.args[0] if inner.op == "sum" else inner


@dataclass(frozen=True)
class KernelSpec:
    """One kernel. A persistent one strides over rows; a looped one takes rows in blocks of columns, in passes. It is
    launched if the constexpr `when` would hold. Of the gradients in `totals` it leaves one sum a row, in float32. One with
    `scatter` adds its rows up in the rows of a table that the input `scatter` counts."""

    name: str
    layout: Layout
    loads: dict[Value, Place]
    stores: tuple[Store, ...]
    accumulators: tuple[Accumulator, ...] = ()
    optional: dict[Value, float] = field(default_factory=dict)
    looped: bool = False
    when: str = ""
    totals: tuple[Accumulator, ...] = ()
    scatter: Value | None = None

    @property
    def persistent(self) -> bool:
        return bool(self.accumulators)

    @property
    def guards(self) -> list[str]:
        found = [*(s.guard for s in self.stores), *(a.guard for a in self.accumulators)]
        return list(dict.fromkeys(guard for guard in found if guard))


@dataclass(frozen=True)
class Launch:
    """Kernels that do the same work: one that holds whole rows, and those that take over where rows are too long."""

    single: KernelSpec | None
    looped: tuple[KernelSpec, ...]


def forward_launches(graph: Graph, plan: Plan, operation: str) -> list[Launch]:
    """Load inputs; store outputs, what backward wants beside them, and rows that the wrapper adds up."""
    order = {item.name: i for i, item in enumerate(graph.inputs)}
    leaves = [v for v in graph.walk(o.value for o in graph.outputs) if v.op == "input"]
    leaves = list(dict.fromkeys([*leaves, *(index for leaf in leaves for index in index_leaves(graph, leaf))]))
    loads = {v: _leaf_place(graph, v) for v in sorted(leaves, key=lambda v: (order[v.attr("name")], v.index))}
    stores: list[Store] = []
    for output in graph.outputs:
        if output.value not in plan.host:
            stores += [Store(Place(output.name, output.dims, cut), v) for cut, v in output_slices(output)]
    if plan.fused:
        loads |= {plan.fused.upstream: _leaf_place(graph, plan.fused.upstream)}
        loads |= {total: kept_place(graph, total, plan) for total in plan.fused.totals}
        stores += fused_stores(graph)
    stored = {store.value for store in stores}
    for value in [*plan.saved, *host_operands(graph, plan)]:
        if value.op != "input" and value not in plan.host and value not in stored:
            stored.add(value)
            stores.append(Store(kept_place(graph, value, plan), value))
    groups = _groups(graph, [s.value for s in stores], loads)
    loop_only = bool(plan.host)
    launches: list[Launch] = []
    suffixes: set[str] = set()
    for members in groups:
        own = tuple(s for s in stores if s.value in members)
        suffix = "" if len(groups) == 1 else unique(f"_{own[0].place.name}", suffixes)
        suffixes.add(suffix)
        spec = _spec(graph, f"_{operation}{suffix}_{'kernel' if plan.fused else 'forward_kernel'}", loads, own, ())
        if plan.fused:
            spec = replace(spec, optional={**spec.optional, plan.fused.upstream: 1.0})
        launches.append(_launch(graph, spec, loop_only, long_rows(graph, spec.layout)))
    return launches


def index_leaves(graph: Graph, leaf: Value) -> list[Value]:
    """The inputs that count the rows that a leaf is made of."""
    names = [piece.at for _, piece in leaf.attr("slices") if piece.at]
    return [next(item.value for item in graph.inputs if item.name == name) for name in names]


def fused_stores(graph: Graph) -> list[Store]:
    """The gradients that forward's kernel stores, each if it is needed."""
    return [
        Store(Place(f"d{name}", graph.dims_of(name)), value, f"NEEDS_D{name.upper()}")
        for (name, _), value in graph.gradients.items()
        if value.op != "const"
    ]


def long_rows(graph: Graph, layout: Layout) -> bool:
    """Whether a row may be longer than a program can hold: hidden sizes and head dimensions are not."""
    names = {name.split("_")[0] for name in layout.cols}
    return not names <= {"H", "D", "I", "R"} or len(layout.cols) > 1


def host_operands(graph: Graph, plan: Plan) -> list[Value]:
    """The rows that the wrapper adds up."""
    order = graph.walk(sorted(plan.host, key=lambda v: v.index))
    if plan.fused:  # without what the wrapper adds up before
        order = graph.walk([o.value for o in graph.outputs], plan.fused.totals)
        order = [v for v in order if v not in plan.fused.totals]
    return [v.args[0] for v in order if v in plan.host and v.op == "sum" and v.args[0] not in plan.host]


def kept_place(graph: Graph, value: Value, plan: Plan) -> Place:
    """Where a forward value is kept: rows in float32, in the order of the tensors they come from."""
    if value not in graph.names:
        graph.names[value] = unique(suggest(value, graph.names), set(graph.names.values()))
    order = memory_order(graph, footprint(graph, value))
    dims = tuple((axis,) for axis in order if axis in value.axes)
    return Place(graph.names[value], dims, exact=not value.axes & plan.cols)


def saved_places(graph: Graph, plan: Plan) -> dict[Value, Place]:
    """Where backward finds what forward saved; outputs under their own names, host scalars as 0-d tensors."""
    outputs = {value: Place(o.name, o.dims, cut) for o in graph.outputs for cut, value in output_slices(o)}
    places: dict[Value, Place] = {}
    for value in plan.saved:
        if value.op == "input":
            places[value] = _leaf_place(graph, value)
        elif value in outputs:
            places[value] = outputs[value]
        else:
            places[value] = kept_place(graph, value, plan)
    return places


def _leaf_place(graph: Graph, value: Value) -> Place:
    name = value.attr("name")
    return Place(name, graph.dims_of(name), value.attr("slices"))


def backward_launches(graph: Graph, plan: Plan, operation: str) -> list[Launch]:
    """Load upstream gradients and what was saved; store gradients, one guard an input when there are several."""
    loads = saved_places(graph, plan)
    for value in graph.walk(graph.gradients.values(), plan.saved):
        if value.op == "input" and value not in loads:
            loads[value] = _leaf_place(graph, value)
    outputs = [f"d{o.name}" for o in graph.outputs]
    rank = {name: i for i, name in enumerate(outputs)}
    loads = dict(sorted(loads.items(), key=lambda item: rank.get(item[1].name, len(rank))))
    return _Backward(graph, operation, loads).launches()


class _Backward:
    """Sorts gradients: tiles are stored, sums over rows accumulated where the layout allows it, others get a kernel."""

    def __init__(self, graph: Graph, operation: str, loads: dict[Value, Place]) -> None:
        self.graph = graph
        self.operation = operation
        self.loads = loads
        self.owner: dict[Value, str] = {}
        for (name, _), value in graph.gradients.items():
            self.owner.setdefault(value, name)
        self.cuts: dict[Value, Slices] = {}
        self.added: set[Value] = set()
        owners = dict.fromkeys(self.owner.values())
        self.guards = {name: f"NEEDS_D{name.upper()}" if len(owners) > 1 else "" for name in owners}

    def launches(self) -> list[Launch]:
        stores: list[Store] = []
        sums: list[Value] = []
        scattered: list[Launch] = []
        for (name, cut), value in self.graph.gradients.items():
            if self.owner[value] != name or value.op == "const":
                continue
            if any(piece.at for _, piece in cut):
                if self.reduces(value):
                    rows = self.kept_rows(name, cut)
                    stores.append(Store(rows, value, self.guards[name]))
                    scattered.append(self.scatter_launch(name, cut, value, rows))
                else:
                    scattered.append(self.scatter_launch(name, cut, value))
                continue
            terms = self.sum_terms(value)
            if terms:
                sums += terms
                self.cuts |= dict.fromkeys(terms, cut)
                self.owner |= dict.fromkeys(terms, name)
                self.added |= set(terms[1:])
            else:
                place = Place(f"d{name}", self.graph.dims_of(name), cut)
                stores.append(Store(place, value, self.guards[name]))
        groups = _groups(self.graph, [s.value for s in stores], self.loads)
        launches: list[Launch] = []
        left = list(sums)
        suffixes: set[str] = set()
        for members in groups:
            own = tuple(s for s in stores if s.value in members)
            layout = self.layout([s.value for s in own], [s.place.axes for s in own])
            accumulated = [v for v in left if self.fits(v, layout)]
            left = [v for v in left if v not in accumulated]
            suffix = "" if len(groups) == 1 else unique(f"_{own[0].place.name}", suffixes)
            suffixes.add(suffix)
            launches.append(self.tile_launch(f"_{self.operation}{suffix}_backward_kernel", own, accumulated))
        launches += [self.sum_launch(value) for value in left]
        return [*launches, *scattered]

    def reduces(self, value: Value) -> bool:
        return any(along(v) for v in self.graph.walk([value], self.loads) if v not in self.loads)

    def kept_rows(self, name: str, cut: Slices) -> Place:
        """Where the gradients of rows that were looked up are kept, if each needs its whole row."""
        axes = read_axes(self.graph.dims_of(name), cut)
        return Place(f"d{name}_rows", tuple((axis,) for axis in axes), exact=True)

    def scatter_launch(self, name: str, cut: Slices, value: Value, kept: Place | None = None) -> Launch:
        """A kernel of its own for what the rows that were looked up in a table give back to it."""
        dims = self.graph.dims_of(name)
        ((_, piece),) = cut
        (index,) = index_leaves(self.graph, self.graph.input(name, (), "float", cut))
        stores = (Store(Place(f"d{name}", dims, cut), value),)
        layout = Layout(piece.axes, tuple(axis for dim in dims[1:] for axis in dim))
        given = {value: kept} if kept is not None else _used(self.graph, self.loads, [value])
        loads = given | {index: _leaf_place(self.graph, index)}
        kernel = f"_{self.operation}_d{name}_kernel"
        spec = KernelSpec(kernel, layout, loads, stores, when=self.guards[name], scatter=index)
        return Launch(None, (spec,))

    def sum_terms(self, value: Value) -> list[Value]:
        """The sums over rows that a gradient is made of: one as a rule, several where heads of two kinds share it."""
        if value.op == "sum" and value not in self.loads:
            return [value]
        if value.op == "neg":
            terms = self.sum_terms(value.args[0])
            return [self.graph.make("sum", self.graph.neg(t.args[0]), over=t.attr("over")) for t in terms]
        if value.op in ("add", "sub"):
            left, right = (self.sum_terms(arg) for arg in value.args)
            if left and right and value.op == "sub":
                right = [self.graph.make("sum", self.graph.neg(t.args[0]), over=t.attr("over")) for t in right]
            apart = {t.attr("over") for t in (*left, *right)}
            return [*left, *right] if left and right and (len(apart) > 1 or set(apart.pop()) - value.axes) else []
        return []

    def layout(self, roots: list[Value], tensors: list[tuple[str, ...]]) -> Layout:
        loaded = [self.loads[v].axes for v in self.graph.walk(roots, self.loads) if v in self.loads]
        return choose_layout(self.graph, roots, self.loads, [*tensors, *loaded])

    def fits(self, value: Value, layout: Layout) -> bool:
        """Whether a program that strides over rows can keep its part of this sum."""
        over, axes = set(value.attr("over")), memory_order(self.graph, value.axes)
        elsewhere = [v for v in self.reductions(value) if along(v) != set(layout.cols)]
        return not elsewhere and not layout.flat and over == set(layout.rows) and axes in ((), layout.cols)

    def reductions(self, value: Value) -> list[Value]:
        """The reductions that a sum's operand is made of; the operand itself may be one, of a total taken in two steps."""
        operand = value.args[0]
        found = [v for v in self.graph.walk([operand], self.loads) if v not in self.loads and along(v)]
        return [v for v in found if v is not operand or v.op != "sum"]

    def tile_launch(self, name: str, stores: tuple[Store, ...], sums: list[Value]) -> Launch:
        accumulators = tuple(self.accumulator(v) for v in sums)
        single = _spec(self.graph, name, self.loads, stores, accumulators)
        long = long_rows(self.graph, single.layout)
        launch = _launch(self.graph, replace(single, accumulators=()), False, long)
        if single.layout.flat or not accumulators or not launch.looped:
            return _launch(self.graph, single, False, long)
        if any(self.reductions(v) for v in sums):
            return Launch(single, ())  # what is summed needs its whole row
        tiles = tuple(
            replace(k, loads=_used(self.graph, self.loads, [s.value for s in k.stores])) for k in launch.looped
        )
        return Launch(single, (*tiles, *(k for v in sums for k in self.sum_launch(v).looped)))

    def accumulator(self, value: Value) -> Accumulator:
        owner, cut = self.owner[value], self.cuts[value]
        name = self.label(value) if cut else f"d{owner}"
        return Accumulator(name, value, Place(f"d{owner}", self.graph.dims_of(owner), cut), self.guards[owner])

    def label(self, value: Value) -> str:
        if value not in self.graph.names:
            self.graph.names[value] = unique(f"d{self.owner[value]}", set(self.graph.names.values()))
        return self.graph.names[value]

    def sum_launch(self, value: Value) -> Launch:
        """A kernel of its own for a sum: what is left are its rows, what is summed its columns."""
        name = self.owner[value]
        operand, over = value.args[0], set(value.attr("over"))
        if operand.op == "sum" and operand not in self.loads:
            over |= set(operand.attr("over"))
            operand = operand.args[0]
        whole = self.graph.make("sum", operand, over=tuple(sorted(over)))
        if any(along(v) for v in self.graph.walk([operand], self.loads) if v not in self.loads):
            raise Unsupported(f"the gradient of {name} sums over rows what needs a reduction of each row", name)
        order = memory_order(self.graph, whole.axes | over)
        dims = self.graph.dims_of(name)
        cut, label = self.cuts[value], self.label(value)
        kernel, guard = f"_{self.operation}_{label}_kernel", self.guards[name]
        if not whole.axes and len(order) > 1:  # a total: one sum a row here, their sum in the wrapper
            inner = self.graph.make("sum", operand, over=order[-1:])
            rows = tuple((axis,) for axis in order[:-1])
            total = self.accumulator(value)
            stores = (Store(Place(f"{total.name}_partial", rows, exact=True), inner),)
            layout = Layout(order[:-1], order[-1:])
            totals: tuple[Accumulator, ...] = (total,)
        else:
            self.graph.names.setdefault(whole, label)
            stores = (Store(Place(f"d{name}", dims, cut), whole, add=value in self.added),)
            layout = Layout(tuple(a for a in order if a in whole.axes), tuple(a for a in order if a in over))
            totals = ()
        loads = _used(self.graph, self.loads, [s.value for s in stores])
        spec = KernelSpec(kernel, layout, loads, stores, (), _optional(self.graph), True, guard, totals)
        return Launch(None, (spec,))


def _groups(graph: Graph, values: list[Value], stop: Iterable[Value]) -> list[set[Value]]:
    """Values that one kernel can compute: those that go over the same axes, and what they need on the way."""
    stops = set(stop)
    feet = {v: frozenset(footprint(graph, v, stops)) for v in values}
    groups: list[tuple[frozenset[str], set[Value]]] = []
    for value in sorted(values, key=lambda v: -len(feet[v])):
        for axes, members in groups:
            if feet[value] <= axes:
                members.add(value)
                break
        else:
            groups.append((feet[value], {value}))
    return [members for _, members in sorted(groups, key=lambda g: min(values.index(v) for v in g[1]))]


def _used(graph: Graph, loads: dict[Value, Place], roots: list[Value]) -> dict[Value, Place]:
    needed = set(graph.walk(roots, loads))
    needed |= {index for value in list(needed) if value.op == "input" for index in index_leaves(graph, value)}
    return {value: place for value, place in loads.items() if value in needed}


def _spec(
    graph: Graph,
    name: str,
    loads: dict[Value, Place],
    stores: tuple[Store, ...],
    accumulators: tuple[Accumulator, ...],
) -> KernelSpec:
    roots = [*(s.value for s in stores), *(a.operand for a in accumulators)]
    used = _used(graph, loads, roots)
    tensors = [*(place.axes for place in used.values()), *(s.place.axes for s in stores)]
    layout = choose_layout(graph, [s.value for s in stores], loads, tensors)
    return KernelSpec(name, layout, used, stores, accumulators, _optional(graph))


def _launch(graph: Graph, spec: KernelSpec, loop_only: bool, long: bool) -> Launch:
    roots = [*(s.value for s in spec.stores), *(a.operand for a in spec.accumulators)]
    scans = [v for v in graph.walk(roots, spec.loads) if v.op in SCANS and v not in spec.loads]
    if any(v.op == "cumprod" for v in scans) or len({v.attr("reverse") for v in scans}) > 1:
        return Launch(spec, ())  # scans in both directions need the whole row
    if spec.layout.flat or not (loop_only or long or scans):
        return Launch(spec, ())
    name = spec.name if loop_only else spec.name.replace("_kernel", "_looped_kernel")
    looped = replace(spec, name=name, looped=True)
    if len(spec.guards) == 1 and all(store.guard for store in spec.stores):
        bare = tuple(replace(store, guard="") for store in spec.stores)
        looped = replace(looped, stores=bare, when=spec.guards[0])
    return Launch(None if loop_only else spec, (looped,))


def _optional(graph: Graph) -> dict[Value, float]:
    return {item.value: item.neutral for item in graph.inputs if item.optional and item.neutral is not None}
