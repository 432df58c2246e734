"""A Plan in, the specifications of the kernels out: what each loads, stores and accumulates."""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from liger_dev.compiler.ir import Axes
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import WHOLE_ROW
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
from liger_dev.compiler.staging import Staging


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
class Correction:
    """An element of each row that is stored once more, after all that `store` stores: `value` at the row's `position`."""

    store: Store
    position: Value
    value: Value


@dataclass(frozen=True)
class Accumulator:
    """A sum over rows: each program keeps its part in float32 and writes it to `NAME_partial_ptr`. Their total is the
    gradient `place`, or the slice of it; `add`: to what is there."""

    name: str
    value: Value
    place: Place
    guard: str = ""
    add: bool = False

    @property
    def operand(self) -> Value:
        """What is added up: a tile or a row; for a total over rows and columns the tile itself."""
        inner = self.value.args[0]
        return inner.args[0] if inner.op == "sum" else inner


@dataclass(frozen=True)
class KernelSpec:
    """One kernel. A persistent one strides over rows; a looped one takes rows in blocks of columns, in passes; one of
    `pieces` reduces no rows, and its programs take a block of columns each. It is launched if the constexpr `when` would hold. Of the gradients in `totals` it leaves one sum a row, in float32. One with
    `scatter` adds its rows up in the rows of a table that the input `scatter` counts; `corrections` follow the stores. A
    looped one that is `wide` takes the place of one that is `narrow` where rows would fill a program's registers."""

    name: str
    layout: Layout
    loads: dict[Value, Place]
    stores: tuple[Store, ...]
    accumulators: tuple[Accumulator, ...] = ()
    optional: dict[Value, float] = field(default_factory=dict)
    looped: bool = False
    pieces: bool = False
    when: str = ""
    totals: tuple[Accumulator, ...] = ()
    scatter: Value | None = None
    corrections: tuple[Correction, ...] = ()
    wide: bool = False
    narrow: bool = False

    @property
    def persistent(self) -> bool:
        return bool(self.accumulators)

    @property
    def guards(self) -> list[str]:
        found = [*(s.guard for s in self.stores), *(a.guard for a in self.accumulators)]
        return list(dict.fromkeys(guard for guard in found if guard))


@dataclass(frozen=True)
class Factored:
    """A sum over rows of which what all rows of a group share is a factor: `kept` is added up row by row, and multiplied by
    `factors` where a group ends."""

    kept: Value
    factors: tuple[Value, ...]


def factored(spec: KernelSpec) -> dict[Accumulator, Factored]:
    """The accumulators that differ in such factors alone, so that a program keeps one sum for all of them."""
    if not spec.layout.groups:
        return {}
    found = {acc: _without_factors(spec.layout, acc) for acc in spec.accumulators}
    kept = [one.kept for one in found.values()]
    return {acc: one for acc, one in found.items() if kept.count(one.kept) > 1 and acc.value.axes & {*spec.layout.cols}}


def _without_factors(layout: Layout, acc: Accumulator) -> Factored:
    kept, factors = acc.operand, []
    while kept.op == "mul" and sorted(map(layout.kind, kept.args)) == ["col", "tile"]:
        kept, factor = sorted(kept.args, key=layout.kind, reverse=True)
        factors.append(factor)
    return Factored(kept, tuple(factors))


@dataclass(frozen=True)
class Launch:
    """Kernels that do the same work: one that holds whole rows, and those that take over where rows are too long."""

    single: KernelSpec | None
    looped: tuple[KernelSpec, ...]


def specs_of(launch: Launch) -> tuple[KernelSpec, ...]:
    return ((launch.single,) if launch.single else ()) + launch.looped


def forward_launches(graph: Graph, plan: Plan, operation: str) -> list[Launch]:
    """Load inputs; store outputs, what backward wants beside them, and rows that the wrapper adds up."""
    order = {item.name: i for i, item in enumerate(graph.inputs)}
    leaves = [v for v in graph.walk(o.value for o in graph.outputs) if v.op == "input"]
    leaves = list(dict.fromkeys([*leaves, *(index for leaf in leaves for index in index_leaves(graph, leaf))]))
    loads = {v: leaf_place(graph, v) for v in sorted(leaves, key=lambda v: (order[v.attr("name")], v.index))}
    stores: list[Store] = []
    for output in graph.outputs:
        if output.value not in plan.host:
            stores += [Store(Place(output.name, output.dims, cut), v) for cut, v in output_slices(output)]
    if plan.fused:
        loads |= {plan.fused.upstream: leaf_place(graph, plan.fused.upstream)}
        loads |= {total: kept_place(graph, total, plan) for total in plan.fused.totals}
        stores += fused_stores(graph)
    stored = {store.value for store in stores}
    for value in [*plan.saved, *host_operands(graph, plan), *plan.kept]:
        if value.op != "input" and value not in plan.host and value not in stored:
            stored.add(value)
            stores.append(Store(kept_place(graph, value, plan), value))
    launches: list[Launch] = []
    steps = staged_steps(graph, stores, loads, plan.staging, {v: kept_place(graph, v, plan) for v in plan.kept})
    suffixes: set[str] = set()
    for own, available in steps:
        suffix = "" if len(steps) == 1 else unique(f"_{own[0].place.name}", suffixes)
        suffixes.add(suffix)
        name = f"_{operation}{suffix}_{'kernel' if plan.fused else 'forward_kernel'}"
        spec = tile_spec(graph, name, available, own, (), plan.cols)
        if plan.fused:
            spec = replace(spec, optional={**spec.optional, plan.fused.upstream: 1.0})
        rows_only = bool(plan.fused) or bool(plan.host) and not stores_tiles(spec)
        if not rows_only and in_pieces(graph, spec):
            launches.append(Launch(replace(spec, pieces=True), ()))
            continue
        launches.append(tile_launch(graph, spec, rows_only, long_rows(graph, spec.layout)))
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


def staged_steps(
    graph: Graph,
    stores: list[Store],
    loads: dict[Value, Place],
    staging: Staging,
    kept: dict[Value, Place],
) -> list[tuple[tuple[Store, ...], dict[Value, Place]]]:
    """What each kernel stores and what is in memory when it is launched, in the order of launches."""
    steps = []
    for number in range(staging.last + 1):
        before = {v: place for v, place in kept.items() if staging.launches[v] < number}
        own = [s for s in stores if staging.launches[s.value] == number]
        needed = graph.walk([s.value for s in own], [*loads, *before, *staging.totals])
        available = {**loads, **before, **{v: total_place(graph, v) for v in needed if v in staging.totals}}
        for members in groups_of(graph, [s.value for s in own], available):
            steps.append((tuple(s for s in own if s.value in members), available))
    return steps


def row_place(graph: Graph, value: Value) -> Place:
    """Where what one launch stores for another is kept: in float32, in the order of the tensors it comes from."""
    order = memory_order(graph, footprint(graph, value))
    return Place(_named(graph, value), tuple((axis,) for axis in order if axis in value.axes), exact=True)


def total_place(graph: Graph, value: Value) -> Place:
    """Where a kernel finds a sum that the wrapper has taken."""
    return Place(_named(graph, value), (), exact=True)


def _named(graph: Graph, value: Value) -> str:
    if value not in graph.names:
        graph.names[value] = unique(suggest(value, graph.names), set(graph.names.values()))
    return graph.names[value]


def strided(spec: KernelSpec) -> bool:
    """Whether neighbours in memory are in different rows, or all rows go through the same columns."""
    rows, cols = set(spec.layout.rows), set(spec.layout.cols)
    places = [*spec.loads.values(), *(store.place for store in spec.stores)]
    tiles = [place.axes for place in places if rows & set(place.axes) and cols & set(place.axes)]
    return max(tiles, key=len)[-1] in rows if tiles else bool(rows)


def in_pieces(graph: Graph, spec: KernelSpec) -> bool:
    """Whether a program need not see the whole of a row: nothing is reduced along it, or kept that is a row's alone."""
    roots = [*(s.value for s in spec.stores), *(a.operand for a in spec.accumulators)]
    values = [v for v in graph.walk(roots, spec.loads) if v not in spec.loads]
    layout = spec.layout
    if layout.flat or not layout.rows or not layout.cols or strided(spec) or any(map(along, values)):
        return False
    return not short_rows(layout) and all(layout.kind(a.operand) == "tile" for a in spec.accumulators)


def short_rows(layout: Layout) -> bool:
    """Whether rows are a head's dimension, which is short as a rule."""
    return all(axis.split("_")[0] == "D" for axis in layout.cols)


def stores_tiles(spec: KernelSpec) -> bool:
    return any(spec.layout.kind(store.value) in ("tile", "col") for store in spec.stores)


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
    """Where a forward value is kept: rows in float32, tiles that a profile asks for in the tensors' own type."""
    place = row_place(graph, value)
    return place if value in plan.kept else replace(place, exact=not value.axes & plan.cols)


def saved_places(graph: Graph, plan: Plan) -> dict[Value, Place]:
    """Where backward finds what forward saved; outputs under their own names, host scalars as 0-d tensors."""
    outputs = {value: Place(o.name, o.dims, cut) for o in graph.outputs for cut, value in output_slices(o)}
    places: dict[Value, Place] = {}
    for value in plan.saved:
        if value.op == "input":
            places[value] = leaf_place(graph, value)
        elif value in outputs:
            places[value] = outputs[value]
        else:
            places[value] = kept_place(graph, value, plan)
    return places


def leaf_place(graph: Graph, value: Value) -> Place:
    name = value.attr("name")
    return Place(name, graph.dims_of(name), value.attr("slices"))


def groups_of(graph: Graph, values: list[Value], stop: Iterable[Value]) -> list[set[Value]]:
    """Values that one kernel can compute: those that go over the same axes, and what they need on the way."""
    stops = set(stop)
    feet = {v: frozenset(footprint(graph, v, stops)) for v in values}
    cols = {v: frozenset().union(*(along(r) for r in graph.walk([v], stops) if r not in stops)) for v in values}
    groups: list[_Group] = []
    for value in sorted(values, key=lambda v: -len(feet[v])):
        home = next((group for group in groups if group.takes(value, feet[value], cols[value])), None)
        if home is None:
            groups.append(_Group(feet[value], cols[value], {value}))
        else:
            home.members.add(value)
            home.cols |= cols[value]
    return [g.members for g in sorted(groups, key=lambda g: min(values.index(v) for v in g.members))]


@dataclass
class _Group:
    """Values of one kernel, all axes that it goes over, and those that it reduces along."""

    axes: Axes
    cols: Axes
    members: set[Value]

    def takes(self, value: Value, foot: Axes, cols: Axes) -> bool:
        if not cols or not foot <= self.axes:
            return foot <= self.axes
        return cols == self.cols and bool(value.axes) or (foot == self.axes and self.cols in (frozenset(), cols))


def used_loads(graph: Graph, loads: dict[Value, Place], roots: list[Value]) -> dict[Value, Place]:
    needed = set(graph.walk(roots, loads))
    needed |= {index for value in list(needed) if value.op == "input" for index in index_leaves(graph, value)}
    return {value: place for value, place in loads.items() if value in needed}


def tile_spec(
    graph: Graph,
    name: str,
    loads: dict[Value, Place],
    stores: tuple[Store, ...],
    accumulators: tuple[Accumulator, ...],
    together: Axes,
) -> KernelSpec:
    roots = [*(s.value for s in stores), *(a.operand for a in accumulators)]
    used = used_loads(graph, loads, roots)
    tensors = [*(place.axes for place in used.values()), *(s.place.axes for s in stores)]
    layout = choose_layout(graph, [s.value for s in stores], loads, tensors, together)
    return KernelSpec(name, layout, used, stores, accumulators, optional_loads(graph))


def tile_launch(graph: Graph, spec: KernelSpec, loop_only: bool, long: bool) -> Launch:
    roots = [*(s.value for s in spec.stores), *(a.operand for a in spec.accumulators)]
    values = [v for v in graph.walk(roots, spec.loads) if v not in spec.loads]
    if any(v.op in WHOLE_ROW for v in values):
        return Launch(spec, ())
    scans = [v for v in values if v.op in SCANS]
    if any(v.op == "cumprod" for v in scans) or len({v.attr("reverse") for v in scans}) > 1:
        return Launch(spec, ())  # scans in both directions need the whole row
    # Totals take one program; rows side by side are taken many at once, which leaves room for a block of each only.
    loop_only = loop_only or (not spec.layout.rows or strided(spec)) and not stores_tiles(spec)
    if spec.layout.flat or not (loop_only or long or scans):
        return Launch(spec, ())
    name = spec.name if loop_only else spec.name.replace("_kernel", "_looped_kernel")
    looped = replace(spec, name=name, looped=True)
    if len(spec.guards) == 1 and all(store.guard for store in spec.stores):
        bare = tuple(replace(store, guard="") for store in spec.stores)
        looped = replace(looped, stores=bare, when=spec.guards[0])
    return Launch(None if loop_only else spec, (looped,))


def optional_loads(graph: Graph) -> dict[Value, float]:
    return {item.value: item.neutral for item in graph.inputs if item.optional and item.neutral is not None}
