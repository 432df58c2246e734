"""Values in, the same values at other positions along an axis out: shifted, rolled, reversed, with what lies outside.

A move goes down to the inputs, which are then read at the other positions; so does the gradient of such a read, the
opposite way. An input that is read at several positions has one gradient, the sum of what comes back from each.
"""

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import is_const
from liger_dev.compiler.padding import UNKNOWN
from liger_dev.compiler.padding import Lanes
from liger_dev.errors import Unsupported


def moved(graph: Graph, value: Value, axis: str, move: Slice) -> Value:
    """The elements of `value` that a move reads along `axis`; any number where it leaves the axis, unless it wraps."""
    return _Mover(graph, axis, move).run(value)


def shifted(graph: Graph, value: Value, axis: str, into: str, by: int, fill: Value | None = None) -> Value:
    """Element `i + by` of `value` along `axis`, for each i of the axis `into`; `fill`, or 0, where there is none."""
    if axis == into and by == 0:
        return value
    found = moved(graph, value, axis, Slice((into,), by, outside="zero"))
    inside = within(graph, axis, into, by)
    if inside is None:
        return found
    if fill is None or is_const(fill, 0):
        if _is_zero_outside(graph, found, axis, into, by):
            return found
        fill = graph.const(False) if found.dtype == "bool" else graph.const(0 if found.dtype == "int" else 0.0)
    return graph.where(inside, found, fill)


def rolled(graph: Graph, value: Value, axis: str, by: int) -> Value:
    """Element `i + by` of `value` along `axis`, counted on from the other end where there is none."""
    return moved(graph, value, axis, Slice((axis,), by, outside="wrap")) if by else value


def within(graph: Graph, axis: str, into: str, by: int) -> Value | None:
    """Whether position `i + by` lies on `axis`, for i of the axis `into`; None where it always does."""
    position = graph.make("index", axes=frozenset({into}), dtype="int", axis=into)
    low, high = bounds(graph, axis, into, by)
    conditions = []
    if low:
        conditions.append(graph.make("ge", position, graph.const(low)))
    if high:
        conditions.append(graph.make("lt", position, graph.sub(graph.size([into]), graph.const(high))))
    if len(conditions) == 2:
        return graph.make("and", *conditions)
    return conditions[0] if conditions else None


def bounds(graph: Graph, axis: str, into: str, by: int) -> tuple[int, int]:
    """How many of the first and of the last elements of `into` lie outside of `axis` when they are read at `i + by`."""
    return max(0, -by), max(0, graph.longer(into, axis) + by)


def overlap(graph: Graph, cuts: list[Slices]) -> bool:
    """Whether reads of a tensor share elements, or leave it: what comes back from them adds up."""
    if any(piece.outside or piece.at for cut in cuts for _, piece in cut):
        return True
    single = [cut for cut in cuts if any(not piece.axes for _, piece in cut)]
    return len(cuts) > 1 and (any(is_moved(graph, cut) for cut in cuts) or () in cuts and len(single) == 1)


def is_moved(graph: Graph, slices: Slices) -> bool:
    """Whether a tensor is read at other positions along an axis than those of its own."""
    return any(
        piece.outside or piece.reversed or any(axis in graph.lengths for axis in piece.axes) for _, piece in slices
    )


def came_back(graph: Graph, leaf: Value, gradient: Value) -> Value:
    """The gradient of a read of an input as a gradient of the whole input."""
    dims = graph.dims_of(leaf.attr("name"))
    for position, piece in leaf.attr("slices"):
        if len(dims[position]) != 1 or piece.step != 1 and not piece.reversed:
            raise Unsupported("overlapping reads of a dimension that is merged or strided", graph.line_of(leaf))
        gradient = _back(graph, leaf, gradient, dims[position][0], piece)
    return gradient


def _back(graph: Graph, leaf: Value, gradient: Value, axis: str, piece: Slice) -> Value:
    index = graph.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
    if piece.reversed:
        return moved(graph, gradient, axis, piece)
    if piece.outside == "wrap" and piece.axes == (axis,):
        return rolled(graph, gradient, axis, -piece.first)
    if not piece.axes and not set(piece.after) - {axis}:
        at = graph.add(graph.size([axis]), graph.const(piece.first)) if piece.after else graph.const(piece.first)
        return graph.where(graph.make("eq", index, at), gradient, graph.const(0.0))
    if piece.outside == "wrap" or piece.after or len(piece.axes) != 1 or not related(graph, piece.axes[0], axis):
        raise Unsupported(f"overlapping reads of {axis}", graph.line_of(leaf))
    return shifted(graph, gradient, piece.axes[0], axis, -piece.first)


def related(graph: Graph, a: str, b: str) -> bool:
    """Whether the lengths of two axes differ by a known number."""
    return graph.lengths.get(a, (a, 0))[0] == graph.lengths.get(b, (b, 0))[0]


def _is_zero_outside(graph: Graph, value: Value, axis: str, into: str, by: int) -> bool:
    """Whether a moved value is 0 where the move leaves the axis, because the inputs that it reads there are."""
    wanted = bounds(graph, axis, into, by)
    # A mean over what may be nothing is no number, and no product with it is 0.
    quotients = [v for v in graph.walk([value]) if v.op == "div" and v.args[1].op == "sum"]
    fills: dict[Value, float | str] = {v: UNKNOWN for v in quotients if axis in v.args[1].attr("over")}
    for leaf in (v for v in graph.walk([value]) if v.op == "input"):
        for position, piece in leaf.attr("slices"):
            if piece.outside == "zero" and piece.axes == (into,):
                (dim,) = graph.dims_of(leaf.attr("name"))[position]
                own = bounds(graph, dim, into, piece.first)
                if own[0] >= wanted[0] and own[1] >= wanted[1]:
                    fills[leaf] = 0.0
    return Lanes(frozenset({into}), fills).of(value) == 0.0


class _Mover:
    """One move along one axis, of as many values as it meets."""

    def __init__(self, graph: Graph, axis: str, move: Slice) -> None:
        self.graph, self.axis, self.move = graph, axis, move
        self.done: dict[Value, Value] = {}

    def run(self, value: Value) -> Value:
        if self.axis not in value.axes:
            return value
        if value not in self.done:
            self.done[value] = self.moved(value)
        return self.done[value]

    def moved(self, value: Value) -> Value:
        match value.op:
            case "input":
                return self.leaf(value)
            case "position":
                raise self.refuse(value, "what depends on elements' positions in all of a tensor")
            case "index":
                return self.index()
            case "cumsum" | "cumprod" if value.attr("axis") == self.axis:
                return self.scan(value)
            case "sort" if value.attr("axis") == self.axis:
                raise self.refuse(value, "a sorted row")
            case "softmax" | "log_softmax" if self.axis in value.attr("over"):
                return self.share(value)
            case "cat" if self.axis in value.attr("into"):
                raise self.refuse(value, "a concatenation")
            case "ge" | "lt" | "eq" if value.args[0].op == "index" and self.move.outside == "zero":
                return self.compared(value)
        args = [self.run(arg) for arg in value.args]
        if value.op == "and" and any(arg.op == "const" and arg.attr("value") for arg in args):
            return args[0] if args[1].op == "const" else args[1]
        return self.graph.rebuild(value, args)

    def refuse(self, value: Value, what: str) -> Unsupported:
        return Unsupported(f"{what} read at other positions of {self.axis}", self.graph.line_of(value))

    def leaf(self, value: Value) -> Value:
        graph, name = self.graph, value.attr("name")
        dims, slices = graph.dims_of(name), dict(value.attr("slices"))
        position = next(i for i, dim in enumerate(dims) if self.axis in slices.get(i, Slice(dim)).axes)
        if dims[position] == (self.axis,) and position not in slices:
            slices[position] = self.move
        else:
            slices[position] = self.joined(value, dims[position], slices.get(position, Slice(dims[position])))
        if slices[position] == Slice(dims[position]):
            del slices[position]
        axes = (value.axes - {self.axis}) | set(self.move.axes)
        return graph.input(name, axes, value.dtype, tuple(sorted(slices.items(), key=lambda s: s[0])))

    def joined(self, value: Value, dim: tuple[str, ...], own: Slice) -> Slice:
        """This move after the read that a leaf is already."""
        move = self.move
        if own.reversed and move.reversed:
            return Slice(dim)
        plain = own.step == 1 and not own.after and not own.at and len(dim) == 1 and len(own.axes) == 1
        if not plain or move.reversed or not related(self.graph, move.axes[0], dim[0]):
            raise self.refuse(value, f"a part of {value.attr('name')}")
        if move.outside == "wrap" and own.outside != "wrap":
            raise self.refuse(value, f"a shift of {value.attr('name')}")
        first = own.first + move.first
        return Slice(dim) if first == 0 and move.axes == dim else Slice(move.axes, first, outside=own.outside or "zero")

    def index(self) -> Value:
        graph, move = self.graph, self.move
        (into,) = move.axes
        position, size = graph.make("index", axes=frozenset({into}), dtype="int", axis=into), graph.size([self.axis])
        if move.reversed:
            return graph.sub(graph.sub(size, graph.const(1)), position)
        if move.outside == "zero":
            return graph.add(position, graph.const(move.first))
        behind = graph.const(move.first)
        if move.first < 0:
            behind = graph.sub(size, graph.make("mod", graph.const(-move.first), size))
        return graph.make("mod", graph.add(position, behind), size)

    def compared(self, value: Value) -> Value:
        """`i + 1 >= 2` as `i >= 1`."""
        graph, (index, bound) = self.graph, value.args
        if self.axis in bound.axes or index.attr("axis") != self.axis:
            return graph.rebuild(value, (self.run(arg) for arg in value.args))
        (into,) = self.move.axes
        size, number = (
            (bound.args[0], bound.args[1]) if bound.op == "sub" and bound.args[0].op == "size" else (None, bound)
        )
        less = graph.sub(number, graph.const(self.move.first if size is None else -self.move.first))
        if size is not None:
            less = graph.sub(size, less)
        elif value.op == "ge" and less.op == "const" and less.attr("value") <= 0:
            return graph.const(True)
        position = graph.make("index", axes=frozenset({into}), dtype="int", axis=into)
        return graph.make(value.op, position, less)

    def scan(self, value: Value) -> Value:
        """A running sum up to an earlier element is the running sum of the earlier elements."""
        move, reverse = self.move, value.attr("reverse")
        if move.reversed:
            return self.graph.make(value.op, self.run(value.args[0]), axis=self.axis, reverse=not reverse)
        (into,) = move.axes
        whole = self.graph.longer(into, self.axis) + move.first >= 0 if reverse else move.first <= 0
        if move.outside != "zero" or not whole:
            raise self.refuse(value, f"a running {'sum' if value.op == 'cumsum' else 'product'}")
        neutral = self.graph.const(0.0 if value.op == "cumsum" else 1.0)
        operand = shifted(self.graph, value.args[0], self.axis, into, move.first, neutral)
        return self.graph.make(value.op, operand, axis=into, reverse=reverse)

    def share(self, value: Value) -> Value:
        """A softmax by its parts: the sum of exponentials belongs to the whole axis and stays where it is."""
        graph, x, over = self.graph, value.args[0], value.attr("over")
        logarithm = graph.sub(self.run(x), graph.make("logsumexp", x, over=over))
        return graph.make("exp", logarithm) if value.op == "softmax" else logarithm
