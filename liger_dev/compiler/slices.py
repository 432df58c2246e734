"""Slices and concatenations: a slice moves down to the inputs it reads, a concatenation up to the outputs it makes.

What is left between them works on pieces, each a value over axes of its own: `rotate_half` and packed gates come out as
a person would write them, without any index arithmetic on values.
"""

import operator

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import WHOLE_ROW
from liger_dev.compiler.moves import overlap
from liger_dev.errors import Unsupported


def counted(graph: Graph, piece: Slice) -> Slice:
    """A slice that begins after axes of fixed size, with the number in their place: the one way to write it."""
    sizes = [graph.sizes[axis] for axis in piece.after]
    if piece.step < 0 or not all(size.isdigit() for size in sizes):
        return piece
    return replace(piece, first=piece.first + sum(map(int, sizes)), after=())


_COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@dataclass
class Slicer:
    """Takes slices of values over one graph. `dim_of` gives the dimension of an input that holds an axis."""

    graph: Graph
    dim_of: Callable[[Value, str], int]
    done: dict[tuple[Value, str, Slice], Value] = field(default_factory=dict)

    def take(self, value: Value, axis: str, piece: Slice) -> Value:
        """The elements of `value` that `piece` reads along `axis`."""
        if axis not in value.axes:
            return value
        piece = counted(self.graph, piece)
        key = (value, axis, piece)
        if key not in self.done:
            self.done[key] = self._take(value, axis, piece)
        return self.done[key]

    def _take(self, value: Value, axis: str, piece: Slice) -> Value:
        g = self.graph
        match value.op:
            case "input":
                return self._leaf(value, axis, piece)
            case "index":
                start = g.const(piece.first)
                for other in piece.after:
                    start = g.add(start, g.size([other]))
                own = (
                    g.make("index", axes=frozenset(piece.axes), dtype="int", axis=piece.axes[0])
                    if piece.axes
                    else g.const(0)
                )
                return g.add(g.mul(own, g.const(piece.step)), start)
            case "position":
                raise Unsupported("a part of what depends on elements' positions in all of a tensor", g.line_of(value))
            case "lt" if value.args[0].op == "index" and value.args[1].op == "const" and len(piece.axes) == 1:
                return self._below(value, piece)
            case "cat" if value.attr("into") == (axis,):
                return self._piece(value, piece)
            case "cumsum" if axis == value.attr("axis") and not piece.axes and not set(piece.after) - {axis}:
                return self._of_sums(value, axis, piece)
            case "cumsum" | "cumprod" if axis == value.attr("axis"):
                raise Unsupported("a slice of a running sum or product", g.line_of(value), "slice its input instead")
            case "sort" if axis == value.attr("axis"):
                return self._of_sorted(value, axis, piece)
            case "softmax" | "log_softmax" if axis in value.attr("over"):
                lse = g.make("logsumexp", value.args[0], over=value.attr("over"))
                share = g.sub(self.take(value.args[0], axis, piece), lse)
                return g.make("exp", share) if value.op == "softmax" else share
        args = [self.take(arg, axis, piece) for arg in value.args]
        if value.op in _COMPARISONS and all(arg.op == "const" for arg in args):
            return g.const(_COMPARISONS[value.op](*(arg.attr("value") for arg in args)))
        return g.rebuild(value, args)

    def _below(self, value: Value, piece: Slice) -> Value:
        """Whether positions of a slice lie below a number: all or none of them may, where their number is known."""
        g, (index, bound) = self.graph, value.args
        (own,), size = piece.axes, g.sizes[piece.axes[0]]
        if piece.step != 1 or piece.after:
            return g.make("lt", self.take(index, index.attr("axis"), piece), bound)
        left = bound.attr("value") - piece.first
        if left <= 0 or size.isdigit() and left >= int(size):
            return g.const(left > 0)
        return g.make("lt", g.make("index", axes=frozenset({own}), dtype="int", axis=own), g.const(left))

    def _of_sums(self, value: Value, axis: str, piece: Slice) -> Value:
        """One element of a running sum: the sum of the elements up to it."""
        g, x = self.graph, value.args[0]
        if piece.first == (0 if value.attr("reverse") else -1) and bool(piece.after) != value.attr("reverse"):
            return g.sum(x, [axis])
        index = g.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
        at = g.add(g.size([axis]), g.const(piece.first)) if piece.after else g.const(piece.first)
        summed = g.make("ge" if value.attr("reverse") else "le", index, at)
        return g.sum(g.where(summed, x, g.const(0.0)), [axis])

    def _of_sorted(self, value: Value, axis: str, piece: Slice) -> Value:
        g = self.graph
        if piece.axes or set(piece.after) - {axis}:
            raise Unsupported("several elements of a sorted row", g.line_of(value), "take one")
        index = g.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
        at = g.add(g.size([axis]), g.const(piece.first)) if piece.after else g.const(piece.first)
        return g.sum(g.where(g.make("eq", index, at), value, g.const(0.0)), [axis])

    def _leaf(self, value: Value, axis: str, piece: Slice) -> Value:
        position = self.dim_of(value, axis)
        slices = dict(value.attr("slices"))
        outer = slices.get(position, Slice(self.graph.dims_of(value.attr("name"))[position]))
        if outer.outside or outer.reversed or outer.at:
            raise Unsupported(f"a part of {axis} that is read at other positions", self.graph.line_of(value))
        if outer.step != 1 and piece.after:
            raise Unsupported(f"a slice of a strided slice of {axis}", self.graph.line_of(value))
        slices[position] = outer.of(piece) if outer.axes == (axis,) else self._of_merged(value, outer, axis, piece)
        axes = (value.axes - {axis}) | set(piece.axes)
        return self.graph.input(
            value.attr("name"), axes, value.dtype, tuple(sorted(slices.items(), key=lambda s: s[0]))
        )

    def _of_merged(self, value: Value, outer: Slice, axis: str, piece: Slice) -> Slice:
        """The slice along one of the axes that are merged in a dimension: one element of the last, or a run of the
        first."""
        before, inner = outer.axes[: outer.axes.index(axis)], outer.axes[outer.axes.index(axis) + 1 :]
        size = self.graph.sizes[axis]
        if outer.step == 1 and not inner and not piece.axes and size.isdigit():
            return Slice(before, outer.first + piece.first % int(size), outer.after, int(size))
        if outer.step == 1 == piece.step and not before and len(inner) == 1 and not piece.after and piece.first >= 0:
            return Slice((*piece.axes, *inner), outer.first, (*outer.after, *inner * piece.first))
        raise Unsupported(f"a slice of a dimension that is merged or strided ({axis})", self.graph.line_of(value))

    def _piece(self, value: Value, piece: Slice) -> Value:
        """The slice of a concatenation: one of its pieces, or a part of one."""
        for part, arg in zip(value.attr("slices"), value.args):
            if part == piece:
                return arg
        if len(piece.axes) == 1 and any(piece.axes == p.axes for p in value.attr("slices")):
            raise Unsupported("a slice of a concatenation that does not match its pieces", self.graph.line_of(value))
        raise Unsupported("a slice across the pieces of a concatenation", self.graph.line_of(value))


def lift(graph: Graph, slicer: Slicer) -> None:
    """Moves concatenations up to the outputs; whole inputs beside sliced ones become concatenations of their slices."""
    done: dict[Value, Value] = {}

    def visit(value: Value) -> Value:
        if value not in done:
            done[value] = _lift(graph, slicer, value, [visit(arg) for arg in value.args])
            name = graph.names.get(value)
            if name and done[value] is not value and done[value].op != "cat" and done[value] not in graph.names:
                graph.names[done[value]] = graph.names.pop(value)
        return done[value]

    graph.outputs[:] = [replace(o, value=visit(o.value)) for o in graph.outputs]
    mixed = _mixed(graph)
    if mixed:
        done.clear()
        done.update(mixed)
        graph.outputs[:] = [replace(o, value=visit(o.value)) for o in graph.outputs]


def _lift(graph: Graph, slicer: Slicer, value: Value, args: list[Value]) -> Value:
    cats = [arg for arg in args if arg.op == "cat"]
    if value.op == "cat":
        return _flattened(graph, value, args)
    if not cats:
        return value if tuple(args) == value.args else graph.rebuild(value, args)
    into, pieces = cats[0].attr("into"), cats[0].attr("slices")
    if value.op in ("argmax", *WHOLE_ROW) and set(value.attr("over")) & set(into):
        raise Unsupported(f"{value.op} over a concatenation", graph.line_of(value), "reduce its pieces")
    if value.op == "sort" and value.attr("axis") in into:
        raise Unsupported("a sorted concatenation", graph.line_of(value))
    if value.op in ("cumsum", "cumprod") and value.attr("axis") in into:
        raise Unsupported("a running sum or product over a concatenation", graph.line_of(value))
    if any(arg.attr("slices") != pieces for arg in cats if arg.attr("into") == into):
        args = _refined(graph, slicer, args, into)
        pieces = next(arg for arg in args if arg.op == "cat").attr("slices")
    parts = []
    for i, piece in enumerate(pieces):
        own = []
        for arg in args:
            if arg.op == "cat" and arg.attr("into") == into:
                if arg.attr("slices") != pieces:
                    raise Unsupported("two concatenations with different pieces meet", graph.line_of(value))
                own.append(arg.args[i])
            elif len(into) == 1:
                own.append(slicer.take(arg, into[0], piece))
            else:
                raise Unsupported("a concatenation meets a merged dimension", graph.line_of(value))
        parts.append(own)
    if value.op in ("sum", "max") and set(value.attr("over")) & set(into):
        return _reduced(graph, value, into, pieces, [own[0] for own in parts])
    if value.op in ("softmax", "log_softmax", "logsumexp") and set(value.attr("over")) & set(into):
        return _normalised(graph, value, into, pieces, [own[0] for own in parts])
    results = [graph.rebuild(value, own) for own in parts]
    return graph.make("cat", *results, dtype=value.dtype, into=into, slices=pieces)


def _refined(graph: Graph, slicer: Slicer, args: list[Value], into: tuple[str, ...]) -> list[Value]:
    """Arguments whose concatenations along `into` have the same pieces, where all pieces are of fixed length: each is cut
    where any of them ends. Others are left as they are."""
    cats = [arg for arg in args if arg.op == "cat" and arg.attr("into") == into]
    spans = {cat: _spans(graph, cat) for cat in cats}
    if not all(spans.values()):
        return args
    ends = sorted({end for own in spans.values() for span in own for end in span})
    cuts = list(zip(ends, ends[1:]))
    slices = tuple(Slice((_fixed_axis(graph, end - start),), start) for start, end in cuts)

    def cut(cat: Value, start: int, end: int, piece: Slice) -> Value:
        i = next(i for i, (low, high) in enumerate(spans[cat]) if low <= start and end <= high)
        (own,) = cat.attr("slices")[i].axes
        whole = spans[cat][i] == (start, end) and piece.axes == (own,)
        return cat.args[i] if whole else slicer.take(cat.args[i], own, Slice(piece.axes, start - spans[cat][i][0]))

    found = {}
    for cat in cats:
        parts = [cut(cat, start, end, piece) for (start, end), piece in zip(cuts, slices)]
        found[cat] = graph.make("cat", *parts, dtype=cat.dtype, into=into, slices=slices)
    return [found.get(arg, arg) for arg in args]


def _spans(graph: Graph, cat: Value) -> list[tuple[int, int]]:
    """Where each piece of a concatenation begins and ends; empty unless all are of fixed length."""
    spans = []
    for piece in cat.attr("slices"):
        sizes = [graph.sizes[axis] for axis in piece.axes]
        if len(sizes) != 1 or piece.step != 1 or piece.after or not sizes[0].isdigit():
            return []
        spans.append((piece.first, piece.first + int(sizes[0])))
    return spans


def _fixed_axis(graph: Graph, length: int) -> str:
    known = next((axis for axis, size in graph.sizes.items() if size == str(length)), "")
    if not known:
        known = f"of_{length}"
        graph.sizes[known], graph.extents[known] = str(length), length
    return known


def _reduced(graph: Graph, value: Value, into: tuple[str, ...], pieces: tuple[Slice, ...], parts: list[Value]) -> Value:
    rest = set(value.attr("over")) - set(into)
    results = []
    for piece, part in zip(pieces, parts):
        over = rest | set(piece.axes)
        attrs = {**dict(value.attrs), "over": tuple(sorted(over))}
        reduced = graph.sum(part, over) if value.op == "sum" else graph.make(value.op, part, **attrs) if over else part
        results.append(reduced)
    total = results[0]
    first = dict(value.attrs).get("ties") == "first"
    if first and any(piece.step != 1 for piece in pieces):
        raise Unsupported("the first of equal elements of interleaved pieces", graph.line_of(value))
    for other in results[1:]:
        if value.op == "sum":
            total = graph.add(total, other)
        elif first:  # the gradient of a tie belongs to the piece that comes first
            total = graph.where(graph.make("ge", total, other), total, other)
        else:
            total = graph.make("maximum", total, other)
    return total


def _normalised(
    graph: Graph, value: Value, into: tuple[str, ...], pieces: tuple[Slice, ...], parts: list[Value]
) -> Value:
    """softmax, log_softmax or logsumexp over a concatenation: the pieces have one logarithm of their total. A piece may be
    -inf throughout; what is taken off all of them, for shares of the whole, may not."""
    rest = set(value.attr("over")) - set(into)
    total: Value | None = None
    for i, (piece, part) in enumerate(zip(pieces, parts)):
        over = tuple(sorted(rest | set(piece.axes)))
        own = graph.make("logsumexp", part, over=over, infinite=True) if over else part
        joined = "sum" if "infinite" in dict(value.attrs) or i < len(parts) - 1 else "shares"
        total = own if total is None else graph.make("logaddexp", total, own, dtype="float", joined=joined)
    assert total is not None, "a concatenation has pieces"
    if value.op == "logsumexp":
        return total
    shares = [graph.sub(part, total) for part in parts]
    if value.op == "softmax":
        shares = [graph.make("exp", share) for share in shares]
    return graph.make("cat", *shares, dtype="float", into=into, slices=pieces)


def _flattened(graph: Graph, value: Value, args: list[Value]) -> Value:
    """A concatenation whose pieces are no concatenations themselves."""
    slices: list[Slice] = []
    parts: list[Value] = []
    for piece, arg in zip(value.attr("slices"), args):
        if arg.op == "cat" and arg.attr("into") == piece.axes:
            slices += [piece.of(inner) for inner in arg.attr("slices")]
            parts += arg.args
        else:
            slices.append(piece)
            parts.append(arg)
    return graph.make("cat", *parts, dtype=value.dtype, into=value.attr("into"), slices=tuple(slices))


def _mixed(graph: Graph) -> dict[Value, Value]:
    """For inputs that are read whole and in slices: the whole as a concatenation of the slices."""
    leaves: dict[str, list[Value]] = {}
    for value in graph.walk(pieces_value for o in graph.outputs for pieces_value in pieces_of(o)):
        if value.op == "input":
            leaves.setdefault(value.attr("name"), []).append(value)
    found: dict[Value, Value] = {}
    for same in leaves.values():
        whole = [v for v in same if not v.attr("slices")]
        cut = [v for v in same if v.attr("slices")]
        if not whole or not cut or overlap(graph, [v.attr("slices") for v in same]):
            continue
        positions = {position for v in cut for position, _ in v.attr("slices")}
        if len(positions) != 1:
            raise Unsupported("an input is read whole and in slices of several dimensions", graph.line_of(cut[0]))
        dims = next(i.dims for i in graph.inputs if i.name == cut[0].attr("name"))
        pieces = [(dict(v.attr("slices"))[min(positions)], v) for v in cut]
        pieces.sort(key=lambda p: (p[0].step == 1 and len(p[0].after), p[0].first))
        into = dims[min(positions)]
        found[whole[0]] = graph.make(
            "cat", *(v for _, v in pieces), dtype=whole[0].dtype, into=into, slices=tuple(p for p, _ in pieces)
        )
    return found


def pieces_of(output: Output) -> list[Value]:
    """The values that an output is stored from."""
    return list(output.value.args) if output.value.op == "cat" else [output.value]


def output_slices(output: Output) -> list[tuple[Slices, Value]]:
    """Each value that an output is stored from, with the slice of the output that it fills."""
    if output.value.op != "cat":
        return [((), output.value)]
    into = output.value.attr("into")
    position = next(i for i, dim in enumerate(output.dims) if set(into) <= set(dim))
    dim = output.dims[position]
    pieces: list[tuple[Slices, Value]] = []
    for piece, value in zip(output.value.attr("slices"), output.value.args):
        pieces.append((((position, _within(dim, into, piece, len(output.value.args))),), value))
    return pieces


def _within(dim: tuple[str, ...], into: tuple[str, ...], piece: Slice, count: int) -> Slice:
    """A slice along the last of the axes merged in a dimension, as a slice of the dimension (`stack` and `flatten`)."""
    if dim == into:
        return piece
    if dim[-1:] == into and not piece.axes:
        return Slice(dim[:-1], piece.first, piece.after, count)
    raise Unsupported(f"a concatenation inside a merged dimension ({', '.join(dim)})", "")
