"""Rows and columns: which axes a kernel walks over, how a tensor's elements are found, and where each sum is taken."""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field

from liger_dev.compiler.ir import Axes
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.moves import related
from liger_dev.errors import Unsupported

REDUCTIONS = ("sum", "max", "min", "argmax", "kth_largest", "simplex_threshold")
# Those that no pass over blocks of a row gives.
WHOLE_ROW = ("kth_largest", "simplex_threshold")
SCANS = ("cumsum", "cumprod")


def along(value: Value) -> Axes:
    """The axes that a reduction or a running sum goes over: a program holds all of them, or loops over them."""
    if value.op in SCANS:
        return frozenset((value.attr("axis"),))
    return frozenset(value.attr("over")) if value.op in REDUCTIONS else frozenset()


@dataclass(frozen=True)
class Layout:
    """A kernel's axes: a program holds whole rows, its reductions go over all columns. `flat`: one run of elements,
    which are then all columns. `groups`: the first of the rows' axes, if programs take the rows of one group after those
    of another; what varies over these alone is then the same for all rows that a program has at hand."""

    rows: tuple[str, ...]
    cols: tuple[str, ...]
    flat: bool = False
    groups: tuple[str, ...] = field(default=(), compare=False)

    @property
    def members(self) -> tuple[str, ...]:
        """The axes of the rows of one group."""
        return self.rows[len(self.groups) :]

    def kind(self, value: Value) -> str:
        """tile, row, col or scalar, by the axes a value varies over."""
        if self.flat:
            return "tile" if value.axes else "scalar"
        return self.kind_of(value.axes)

    def kind_of(self, axes: Iterable[str]) -> str:
        """What `kind` says of a value that varies over `axes`."""
        return _KINDS[not set(axes).isdisjoint(self.members), not set(axes).isdisjoint(self.cols)]


_KINDS = {(True, True): "tile", (True, False): "row", (False, True): "col", (False, False): "scalar"}


@dataclass(frozen=True)
class Address:
    """Where a kernel finds a tensor's elements: an expression of `rows`, `cols` or `offsets`, and the axes whose sizes
    it needs."""

    text: str
    sizes: tuple[str, ...]


def read_axes(dims: Dims, slices: Slices = ()) -> tuple[str, ...]:
    """The axes of a tensor, or of a slice of it, in memory order."""
    cut = dict(slices)
    return tuple(axis for i, dim in enumerate(dims) for axis in (cut[i].axes if i in cut else dim))


def address(graph: Graph, layout: Layout, dims: Dims, slices: Slices = ()) -> Address:
    """The address of a contiguous tensor's elements relative to its pointer."""
    return _Addressing(graph, layout).address(dims, dict(slices))


class _Addressing:
    """Builds one address: runs of axes that lie together in memory and in the layout share one term."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self.graph = graph
        self.layout = layout
        self.sizes: dict[str, None] = {}
        self.reversed: set[str] = set()
        self.wrapped: dict[str, int] = {}

    def address(self, dims: Dims, cut: dict[int, Slice]) -> Address:
        atoms: list[tuple[str, tuple[str, ...]]] = []
        starts: list[str] = []
        looked_up: list[str] = []
        stride: tuple[str, ...] = ()
        for i in range(len(dims) - 1, -1, -1):
            piece = cut.get(i, Slice(dims[i]))
            if piece.reversed:
                self.reversed.update(piece.axes)
                piece = Slice(piece.axes)
            if piece.at:
                looked_up.append(self.times(f"{piece.at}.to(tl.int64)", stride))
                piece = Slice(())
            if piece.outside == "wrap":
                self.wrapped[piece.axes[0]] = piece.first
                piece = Slice(piece.axes)
            inner = stride + ((str(piece.step),) if piece.step != 1 else ())
            for axis in reversed(piece.axes):
                atoms.insert(0, (axis, inner))
                inner = (*inner, axis)
            start = [*([str(piece.first)] if piece.first else []), *(self.size((axis,)) for axis in piece.after)]
            if start and not piece.after and piece.first < 0:
                starts.insert(0, f"-{self.times(str(-piece.first), stride)}")
            elif start:
                starts.insert(0, self.times(start[0] if len(start) == 1 else f"({' + '.join(start)})", stride))
            stride = (*stride, *dims[i])
        terms = [self.times(self.wide(run, run_stride), run_stride) for run, run_stride in self.runs(atoms)]
        return Address(" + ".join([*looked_up, *terms, *starts]).replace(" + -", " - ") or "0", tuple(self.sizes))

    def runs(self, atoms: list[tuple[str, tuple[str, ...]]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Atoms that follow each other in the layout and in memory, joined."""
        joined: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        for axis, stride in atoms:
            if joined:
                run, before = joined[-1]
                together = sorted(before) == sorted((*stride, axis))
                alone = {*self.reversed, *self.wrapped}
                if together and not {run[-1], axis} & alone and self.follows(run[-1], axis):
                    joined[-1] = ((*run, axis), stride)
                    continue
            joined.append(((axis,), stride))
        return joined

    def group(self, axis: str) -> tuple[str, ...]:
        return self.layout.rows if axis in self.layout.rows else self.layout.cols

    def follows(self, before: str, axis: str) -> bool:
        group = self.group(axis)
        return before in group and group.index(before) + 1 == group.index(axis)

    def index(self, run: tuple[str, ...]) -> str:
        group = self.group(run[0])
        base = "offsets" if self.layout.flat else "rows" if group == self.layout.rows else "cols"
        if set(run) <= set(self.layout.groups):
            group, base = self.layout.groups, "group"
        first, last = group.index(run[0]), group.index(run[-1])
        text = base
        if last < len(group) - 1:
            text = f"{text} // {self.product(group[last + 1 :])}"
        if first > 0:
            text = f"{text} % {self.product(run)}"
        if run[0] in self.reversed:
            return f"({self.size(run)} - 1 - {text})"
        return self.around(text, run, self.wrapped[run[0]]) if run[0] in self.wrapped else text

    def wide(self, run: tuple[str, ...], stride: tuple[str, ...]) -> str:
        """The index as a stride takes it. Columns are counted in 32 bits, in which a GPU divides several times faster
        than in 64, but which the product with a size may exceed."""
        text = self.index(run)
        sizes = any(not self.graph.sizes.get(factor, factor).isdigit() for factor in stride)
        if self.layout.flat or self.group(run[0]) != self.layout.cols or not sizes:
            return text
        return f"{text if text.isidentifier() or text.startswith('(') else f'({text})'}.to(tl.int64)"

    def around(self, text: str, run: tuple[str, ...], by: int) -> str:
        """The position `by` elements on, counted from the other end where there is none."""
        size = self.size(run)
        behind = f"{size} - 1" if by == -1 else f"{size} - {-by} % {size}" if by < 0 else str(by)
        return f"(({text} + {behind}) % {size})"

    def times(self, text: str, stride: tuple[str, ...]) -> str:
        if not stride:
            return text
        factor = self.product(stride)
        return factor if text == "1" else f"{text} * {factor}"

    def product(self, factors: tuple[str, ...]) -> str:
        """A product of sizes and numbers, with `n_cols` and `n_rows` where it has all of theirs."""
        left = list(factors)
        parts = []
        for axes, name in (
            (self.layout.cols, "n_elements" if self.layout.flat else "n_cols"),
            (self.layout.rows, "n_rows"),
        ):
            if axes and all(axis in left for axis in axes):
                for axis in axes:
                    left.remove(axis)
                parts.append(name)
        parts = [*(self.size((factor,)) if factor in self.graph.sizes else factor for factor in left), *parts]
        return parts[0] if len(parts) == 1 else f"({' * '.join(parts)})"

    def size(self, axes: tuple[str, ...]) -> str:
        (axis,) = axes
        if self.layout.cols == axes:
            return "n_elements" if self.layout.flat else "n_cols"
        if self.layout.rows == axes:
            return "n_rows"
        if self.graph.sizes.get(axis, "").isdigit():
            return self.graph.sizes[axis]
        for other, name in ((self.layout.cols, "n_cols"), (self.layout.rows, "n_rows")):
            if axis in self.graph.lengths and len(other) == 1 and related(self.graph, axis, other[0]):
                more = self.graph.longer(axis, other[0])
                return f"({name} {'-' if more < 0 else '+'} {abs(more)})"
        self.sizes[axis] = None
        return f"n_{axis}"


def footprint(graph: Graph, value: Value, stop: Iterable[Value] = ()) -> Axes:
    """All axes that computing a value goes over."""
    return frozenset().union(*(v.axes for v in graph.walk([value], stop)))


def memory_order(graph: Graph, axes: Axes) -> tuple[str, ...]:
    """Axes in the order in which tensors keep them: that of the first tensor that has them all, else pieced together."""
    orders = [read_axes(o.dims) for o in graph.outputs] + [read_axes(i.dims) for i in graph.inputs]
    orders += [
        read_axes(graph.dims_of(v.attr("name")), v.attr("slices"))
        for v in graph.walk([*(o.value for o in graph.outputs), *graph.gradients.values()])
        if v.op == "input"
    ]
    complete = [tuple(axis for axis in order if axis in axes) for order in orders if axes <= set(order)]
    if complete:
        return complete[0]
    found: list[str] = []
    for order in sorted(orders, key=lambda o: -len(axes & set(o))):
        for position, axis in enumerate(order):
            if axis in axes and axis not in found:
                after = [found.index(a) for a in order[:position] if a in found]
                found.insert(max(after) + 1 if after else 0, axis)
    return tuple(found)


def choose_layout(
    graph: Graph,
    roots: Iterable[Value],
    stop: Iterable[Value],
    tensors: Iterable[tuple[str, ...]],
    together: Axes = frozenset(),
) -> Layout:
    """The layout of a kernel that computes `roots`; `tensors` are the axes, in memory order, of what it loads and stores.

    Columns are the axes that its reductions go over; without reductions the last axis, with others of those `together`
    that no tensor has without it, or everything (flat) when all tensors lie alike.
    """
    roots, stop, tensors = list(roots), set(stop), list(tensors)
    values = graph.walk(roots, stop)
    # A tensor may have axes that its values are the same along.
    axes: Axes = frozenset().union(*(v.axes for v in values), *tensors)
    order = memory_order(graph, axes)
    reduced = [along(v) for v in values if along(v) and v not in stop]
    alike = all(tensor in ((), order) for tensor in tensors) and not any(_leaves_axis(v) for v in values)
    if not reduced and alike:
        return Layout((), order, True)
    cols = min(reduced, key=len) if reduced else _last_columns(order, tensors, together)
    for value in values:
        if value.op in SCANS and value not in stop and along(value) != cols:
            raise Unsupported("a running sum beside reductions along other axes", graph.line_of(value))
    return Layout(tuple(a for a in order if a not in cols), tuple(a for a in order if a in cols))


def _last_columns(order: tuple[str, ...], tensors: list[tuple[str, ...]], together: Axes) -> Axes:
    for first in range(len(order) - 1):
        run = frozenset(order[first:])
        if run <= together and all(run & {*tensor} in (frozenset(), run) for tensor in tensors):
            return run
    return frozenset(order[-1:])


def _leaves_axis(value: Value) -> bool:
    """Whether a read goes to other positions than those of rows and columns."""
    return value.op == "input" and any(piece.outside for _, piece in value.attr("slices"))


def split_reductions(graph: Graph, value: Value, cols: frozenset[str], done: dict[Value, Value]) -> Value:
    """`value` with sums and maxima over columns and rows at once taken in two steps: over the columns first."""
    if value not in done:
        args = [split_reductions(graph, arg, cols, done) for arg in value.args]
        over = along(value) if value.op in ("sum", "max") else frozenset()
        if cols and over > cols and cols <= args[0].axes:
            others = {key: attr for key, attr in value.attrs if key != "over"}
            inner = graph.make(value.op, args[0], over=tuple(sorted(cols)), **others)
            done[value] = graph.make(value.op, inner, over=tuple(sorted(over - cols)), **others)
        elif tuple(args) == value.args:
            done[value] = value
        elif value.op == "sum":
            done[value] = graph.make("sum", args[0], over=value.attr("over"))
        else:
            done[value] = graph.rebuild(value, args)
        name = graph.names.get(value)
        if name and done[value] is not value and done[value] not in graph.names:
            graph.names[done[value]] = graph.names.pop(value)
    return done[value]
