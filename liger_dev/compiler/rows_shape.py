"""Rows that compute nothing: views, slices, concatenations, permutations, sizes and indices."""

from collections.abc import Callable
from typing import Any

import torch

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import axes_of
from liger_dev.compiler.lowering import Indivisible
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import SplitAxis
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import dtype_of
from liger_dev.compiler.lowering import hint
from liger_dev.compiler.lowering import result
from liger_dev.compiler.rows_cast import CASTS
from liger_dev.compiler.rows_move import MOVES
from liger_dev.compiler.rows_move import overlaid
from liger_dev.compiler.rows_move import overlays
from liger_dev.compiler.rows_move import replaced
from liger_dev.compiler.rows_move import shortened
from liger_dev.compiler.slices import counted


def _reshape(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    """view, flatten, unsqueeze, squeeze, expand: the axes stay in order; dimensions merge, or an axis is split.

    Raises:
        SplitAxis: a dimension of the result is a part of an axis.
    """
    t = state.term(x)
    sizes = state.shape(state.node)
    if str(state.node.target).startswith("aten.expand"):
        padded = ((),) * (len(sizes) - len(t.dims)) + t.dims
        return Term(
            t.value, tuple(dim or _repeated(state, i, n) for i, (dim, n) in enumerate(zip(padded, sizes))), t.dtype_of
        )
    queue = [axis for dim in t.dims for axis in dim]
    dims = tuple(_take(state, queue, size, i) for i, size in enumerate(sizes))
    if queue:
        raise state.refuse("a view that does not keep the order of axes")
    return Term(t.value, dims, t.dtype_of)


def _repeated(state: Lowering, position: int, size: int) -> tuple[str, ...]:
    """The dimension along which an expanded tensor is the same: an axis, or as many times as the reference says."""
    static = isinstance(state.node.meta["val"].shape[position], int)
    if static and size > 1 and size not in state.hints.values():
        return (state.new_axis("pair" if size == 2 else f"times_{size}", size, str(size)),)
    return state.axis_of_size(size)


def _take(state: Lowering, queue: list[str], size: int, position: int) -> tuple[str, ...]:
    """The axes from the front of `queue` whose product is a size."""
    taken: list[str] = []
    left = size
    while left > 1:
        if not queue:
            raise state.refuse("a view that does not keep the order of axes")
        extent = state.hints[queue[0]]
        if left % extent == 0:
            taken.append(queue.pop(0))
            left //= extent
        elif extent % left == 0:
            static = isinstance(state.node.meta["val"].shape[position], int)
            raise SplitAxis(queue[0], (left, extent // left), (static and not taken, _is_static(state, extent // left)))
        else:
            refusal = state.refuse("a view across the borders of axes")
            if not taken and isinstance(state.node.meta["val"].shape[position], int):
                raise Indivisible(refusal, queue[0], left)
            raise refusal
    return tuple(taken)


def _is_static(state: Lowering, size: int) -> bool:
    """Whether a size occurs in the graph as a plain number, in the result's shape or in the one that is asked for."""
    asked = [n for arg in state.node.args[1:] if isinstance(arg, list | tuple) for n in arg]
    return any(isinstance(n, int) and n == size for n in (*state.node.meta["val"].shape, *asked))


def _slice(state: Lowering, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Term:
    t = state.term(x)
    position = dim % len(t.dims)
    start, end = (_from_end(x.meta["val"].shape[position], border) for border in (start, end))
    extent = state.extent(t.dims[position])
    low = _bound(state, start, 0, extent)
    high = _bound(state, end, extent, extent)
    if (low, high, step) == (0, extent, 1):
        return t
    if step == 1 and len(t.dims[position]) == 1 and all(n is None or isinstance(n, int) for n in (start, end)):
        return _counted(state, t, position, start or 0, end, low, high)
    return _sliced(state, t, position, low, -(-(high - low) // step), step)


def _from_end(size: Any, border: Any) -> Any:
    """`x.shape[-1] - 1` as the border -1; other borders as they are."""
    if not isinstance(border, torch.fx.Node) or isinstance(size, int):
        return border
    number = _fixed_number(border.meta["val"] - size)
    return border if number is None or number >= 0 else number


def _fixed_number(size: Any) -> int | None:
    """A difference of sizes that is the same number whatever they are."""
    if isinstance(size, int):
        return size
    return int(size.node.expr) if size.node.expr.is_number else None


def _narrow(state: Lowering, x: Any, dim: int, start: Any, length: Any) -> Term:
    if isinstance(start, int) and isinstance(length, int):
        return _slice(state, x, dim, start, start + length)
    low, size = (n if isinstance(n, int) else n.meta["val"] for n in (start, length))
    t = state.term(x)
    rest = _fixed_number(x.meta["val"].shape[dim] - low - size)
    if isinstance(start, int) and rest is not None:
        return _slice(state, x, dim, start, -rest if rest else None)
    return _sliced(state, t, dim % len(t.dims), hint(low), hint(size), 1)


def _counted(state: Lowering, t: Term, position: int, start: int, end: int | None, low: int, high: int) -> Term:
    """A slice whose borders are numbers, counted from either end: a number of elements, or all but a number of them."""
    axis = t.dims[position][0]
    extent = state.hints[axis]
    piece = _piece_of(state, t.value, axis, low, high)
    if piece is not None:
        return replaced(t, position, piece.axes[0], state.slicer.take(t.value, axis, piece))
    from_start, to_end = start >= 0, end is None or end < 0 or end >= extent
    if state.graph.sizes[axis].isdigit() or from_start != to_end:
        if high - low == 1:
            piece = Slice((), low) if from_start else Slice((), low - extent, (axis,))
            left = (*t.dims[:position], (), *t.dims[position + 1 :])
            return Term(state.slicer.take(t.value, axis, piece), left, t.dtype_of)
        own = state.part_axis(axis, high - low, True)
        piece = Slice((own,), low) if from_start else Slice((own,), low - extent, (axis,))
        return replaced(t, position, own, state.slicer.take(t.value, axis, piece))
    elif from_start and _begins_apart(state, extent, low):
        return _sliced(state, t, position, low, high - low, 1, fixed_start=True)
    elif from_start:
        return shortened(state, t, position, low, extent - high)
    return _sliced(state, t, position, low, high - low, 1)


def _begins_apart(state: Lowering, extent: int, first: int) -> bool:
    """Whether the first elements of a dimension, so many, are taken for themselves somewhere: the rest is the other piece."""
    for node in state.traced.graph.nodes:
        if first > 1 and str(node.target) == "aten.slice.Tensor":
            x, dim, start, end, *step = [*node.args, 0, 0, None][: max(len(node.args), 4)]
            if (start in (0, None), end, step in ([], [1])) == (True, first, True):
                if hint(x.meta["val"].shape[dim]) == extent:
                    return True
    return False


def _piece_of(state: Lowering, value: Value, axis: str, low: int, high: int) -> Slice | None:
    """The piece of a concatenation along an axis that a slice takes, if it takes one."""
    for cat in state.graph.walk([value]):
        pieces: tuple[Slice, ...] = cat.attr("slices") if cat.op == "cat" and cat.attr("into") == (axis,) else ()
        for piece in pieces:
            start = piece.first + sum(state.hints[other] for other in piece.after)
            if len(piece.axes) == 1 and (start, start + state.hints[piece.axes[0]], 1) == (low, high, piece.step):
                return piece
    return None


def _bound(state: Lowering, given: Any, default: int, extent: int) -> int:
    if given is None:
        return default
    number = given if isinstance(given, int) else hint(given.meta["val"])
    return max(0, min(number + extent if number < 0 else number, extent))


def _sliced(
    state: Lowering,
    t: Term,
    position: int,
    low: int,
    length: int,
    step: int,
    fixed: bool = False,
    fixed_start: bool = False,
) -> Term:
    """Elements low, low + step, … of one dimension; their number, and where they begin, may be `fixed` by the reference."""
    dim = t.dims[position]
    if len(dim) == 2 and step == state.hints[dim[1]] and low < step:
        return element(
            state,
            Term(t.value, (*t.dims[:position], dim[:1], dim[1:], *t.dims[position + 1 :]), t.dtype_of),
            position + 1,
            low,
        )
    if len(dim) != 1:
        raise state.refuse("a slice of a dimension of merged or no axes")
    axis = dim[0]
    if length == 1 and state.graph.sizes[axis].isdigit():
        left = (*t.dims[:position], (), *t.dims[position + 1 :])
        return Term(state.slicer.take(t.value, axis, Slice((), low)), left, t.dtype_of)
    own = state.part_axis(axis, length, fixed)
    if step > 1 or fixed_start:
        piece = Slice((own,), low, (), step)
    else:
        piece = Slice((own,), *state.start_of(axis, low, own))
    value = state.slicer.take(t.value, axis, piece)
    return Term(value, (*t.dims[:position], (own,), *t.dims[position + 1 :]), t.dtype_of)


def _select(state: Lowering, x: Any, dim: int, index: int) -> Term:
    t = state.term(x)
    return element(state, t, dim % len(t.dims), index)


def element(state: Lowering, t: Term, position: int, index: int) -> Term:
    """One element of one dimension, which disappears."""
    dim = t.dims[position]
    left = (*t.dims[:position], *t.dims[position + 1 :])
    if not dim:
        return Term(t.value, left, t.dtype_of)
    if len(dim) != 1:
        raise state.refuse("an element of a dimension of merged axes")
    piece = Slice((), index, dim if index < 0 else ())
    return Term(state.slicer.take(t.value, dim[0], piece), left, t.dtype_of)


def _split(state: Lowering, x: Any, sizes: Any, dim: int = 0) -> tuple[Term, ...]:
    t = state.term(x)
    position = dim % len(t.dims)
    given = [value.shape[position] for value in state.node.meta["val"]]
    lengths = [hint(size) for size in given]
    counted = isinstance(sizes, list | tuple) and len(set(lengths)) > 1
    pieces = []
    for i, length in enumerate(lengths):
        fixed = counted and isinstance(given[i], int)
        fixed_start = counted and all(isinstance(size, int) for size in given[:i])
        pieces.append(_sliced(state, t, position, sum(lengths[:i]), length, 1, fixed, fixed_start))
    return tuple(pieces)


def _glu(state: Lowering, x: Any, dim: int = -1) -> Term:
    """The first half times the sigmoid of the second."""
    t, g = state.term(x), state.graph
    position = dim % len(t.dims)
    half = state.extent(t.dims[position]) // 2
    first, second = (_sliced(state, t, position, low, half, 1) for low in (0, half))
    return result(state, g.mul(first.value, g.make("sigmoid", second.value)), [first, second])


def _unbind(state: Lowering, x: Any, dim: int = 0) -> tuple[Term, ...]:
    t = state.term(x)
    position = dim % len(t.dims)
    return tuple(element(state, t, position, i) for i in range(state.extent(t.dims[position])))


def _cat(state: Lowering, tensors: Any, dim: int = 0) -> Term:
    terms = [state.term(tensor) for tensor in tensors]
    position = dim % len(terms[0].dims)
    if overlays(state, terms, position):
        return overlaid(state, terms, position)
    total = state.shape(state.node)[position]
    into = state.whole_axis([t.dims[position] for t in terms], total)
    if (sections := _sections(state, terms, position, total)) is not None:
        return sections
    slices = []
    after: tuple[str, ...] = ()
    first = 0
    for t in terms:
        own = t.dims[position]
        if len(own) > 1:
            raise state.refuse("a concatenation along merged axes")
        slices.append(counted(state.graph, Slice(own, first, after)))
        after, first = (*after, *own), first + (0 if own else 1)
    return _joined(
        state, terms, (into,), tuple(slices), lambda dims: (*dims[:position], (into,), *dims[position + 1 :])
    )


def _sections(state: Lowering, terms: list[Term], position: int, total: int) -> Term | None:
    """Sections of fixed length that keep their places, each of another row of a tensor: a choice by the position."""
    g = state.graph
    whole, end, ends = [], 0, []
    into = ""
    for t in terms:
        own = t.dims[position]
        leaf = t.value.args[0] if t.value.op == "detach" else t.value
        cut = {piece: i for i, piece in leaf.attr("slices")} if leaf.op == "input" else {}
        dim = cut.get(Slice(own, end))
        if dim is None or len(own) != 1 or not g.sizes[own[0]].isdigit():
            return None
        name = leaf.attr("name")
        (axis, *rest) = g.dims_of(name)[dim]
        into = into or axis
        if axis != into or rest or g.sizes[axis] != str(total):
            return None
        slices = tuple(s for s in leaf.attr("slices") if s[0] != dim)
        row = g.input(name, (leaf.axes - {own[0]}) | {into}, leaf.dtype, slices)
        whole.append(row if leaf is t.value else g.make("detach", row))
        end += int(g.sizes[own[0]])
        ends.append(end)
    index = g.make("index", axes=frozenset({into}), dtype="int", axis=into)
    value = whole[-1]
    for row, stop in reversed([*zip(whole, ends)][:-1]):
        value = g.where(g.make("lt", index, g.const(stop)), row, value)
    dims = terms[0].dims
    return Term(value, (*dims[:position], (into,), *dims[position + 1 :]), dtype_of(state, terms))


def _stack(state: Lowering, tensors: Any, dim: int = 0) -> Term:
    terms = [state.term(tensor) for tensor in tensors]
    return stacked(state, terms, dim % (len(terms[0].dims) + 1))


def stacked(state: Lowering, terms: list[Term], position: int) -> Term:
    """Terms side by side along a new dimension."""
    into = state.new_axis("pair" if len(terms) == 2 else "stack", len(terms), str(len(terms)))
    slices = tuple(Slice((), i) for i in range(len(terms)))
    return _joined(state, terms, (into,), slices, lambda dims: (*dims[:position], (into,), *dims[position:]))


def _joined(
    state: Lowering,
    terms: list[Term],
    into: tuple[str, ...],
    slices: tuple[Slice, ...],
    placed: Callable[[Dims], Dims],
) -> Term:
    value = state.graph.make("cat", *(t.value for t in terms), dtype=terms[0].value.dtype, into=into, slices=slices)
    others = [tuple(dim for dim in t.dims) for t in terms]
    return Term(value, placed(others[0]), dtype_of(state, terms))


def _permute(state: Lowering, x: Any, order: Any) -> Term:
    t = state.term(x)
    return Term(t.value, tuple(t.dims[i] for i in order), t.dtype_of)


def _einsum(state: Lowering, equation: str, operands: Any) -> Term:
    """A product of tensors that is summed over letters, as long as one tensor has them all."""
    inputs, _, out = equation.replace(" ", "").partition("->")
    terms, specs = [state.term(operand) for operand in operands], inputs.split(",")
    if "." in equation or not any(set("".join(specs)) <= set(spec) for spec in specs):
        raise state.refuse("it multiplies matrices", "take it out of the operation, or write it with * and sum")
    dims: dict[str, tuple[str, ...]] = {}
    for spec, t in zip(specs, terms):
        for letter, dim in zip(spec, t.dims):
            dims[letter] = dims.get(letter) or dim
            if dim and dims[letter] != dim:
                raise state.refuse(f"axes {' '.join(dims[letter])} and {' '.join(dim)} meet in one dimension")
    value = terms[0].value
    for t in terms[1:]:
        value = state.graph.mul(value, t.value)
    gone = {axis for letter, dim in dims.items() if letter not in out for axis in dim}
    return result(state, state.graph.sum(value, gone), terms, tuple(dims[letter] for letter in out))


def _transpose(state: Lowering, x: Any, a: int, b: int) -> Term:
    rank = len(state.term(x).dims)
    order = list(range(rank))
    order[a % rank], order[b % rank] = order[b % rank], order[a % rank]
    return _permute(state, x, order)


def _moved(rank: int, source: int, to: int) -> list[int]:
    order = [i for i in range(rank) if i != source % rank]
    order.insert(to % rank, source % rank)
    return order


def _same(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    return state.term(x)


def _detach(state: Lowering, x: Any) -> Term:
    t = state.term(x)
    return Term(state.graph.make("detach", t.value), t.dims, t.dtype_of)


def _sym_size(state: Lowering, x: Any, dim: int) -> Value:
    return state.graph.size(state.term(x).dims[dim])


def _number_row(make: Callable[[Graph, Value, Value], Value]) -> Row:
    """Arithmetic on sizes."""

    def row(state: Lowering, a: Any, b: Any) -> Value:
        return make(state.graph, state.term(a).value, state.term(b).value)

    return row


def _product_of_sizes(g: Graph, a: Value, b: Value) -> Value:
    """The number of elements over the axes of both, where both are sizes."""
    if a.op == b.op == "size" and not {*a.attr("over")} & {*b.attr("over")}:
        return g.size((*a.attr("over"), *b.attr("over")))
    return g.mul(a, b)


def _size_root(state: Lowering, size: Any) -> Value:
    return state.graph.make("sqrt", as_float(state.graph, state.term(size).value))


def _size_power(state: Lowering, size: Any, exponent: Any) -> Value:
    """A power of a size: `x.shape[-1] ** 0.5`."""
    g, value = state.graph, as_float(state.graph, state.term(size).value)
    if exponent in (0.5, -0.5):
        return g.make("sqrt" if exponent > 0 else "rsqrt", value)
    if isinstance(exponent, int) and abs(exponent) <= 4:
        return g.power(value, exponent)
    return g.make("pow", value, as_float(g, state.term(exponent).value))


def _counted_part(state: Lowering, size: int, args: tuple[Any, ...]) -> tuple[str, ...]:
    """The part of an axis that `torch.arange(0, n, 2)` or `torch.arange(n // 2)` counts, for the axis's size n."""
    end = args[1] if len(args) > 1 else args[0]
    if isinstance(end, torch.fx.Node) and str(end.target) == "<built-in function floordiv>":
        end = end.args[0]
    whole = hint(end.meta["val"]) if isinstance(end, torch.fx.Node) else 0
    axis = next((axis for axis, extent in state.hints.items() if extent == whole), "")
    return (state.part_axis(axis, size),) if axis and whole % size == 0 else state.axis_of_size(size)


def _arange(state: Lowering, *args: Any, **kwargs: Any) -> Term:
    """Indices of an axis: `torch.arange(x.shape[-1])`, or others in equal steps, `torch.arange(1, x.shape[-1] + 1)`."""
    (size,) = state.shape(state.node)
    if isinstance(args[0], torch.fx.Node) and str(args[0].target) == "aten.sym_numel.default":
        order = axes_of(state.term(args[0].args[0]).dims)
        return Term(state.graph.make("position", axes=frozenset(order), dtype="int", order=order), (order,))
    dim = state.axis_of_size(size) if size in state.hints.values() else _counted_part(state, size, args)
    start, step = args[0] if len(args) > 1 else 0, args[2] if len(args) > 2 else 1
    if not dim or not isinstance(start, int) or not isinstance(step, int):
        raise state.refuse("a range that does not count an axis from a number")
    g = state.graph
    index = g.make("index", axes=frozenset(dim), dtype="int", axis=dim[0])
    value = g.add(g.mul(index, g.const(step)), g.const(start))
    if state.node.meta["val"].dtype.is_floating_point:
        value = state.graph.make("float", value)
    return Term(value, (dim,))


SHAPES: dict[str, Row] = {
    **CASTS,
    **MOVES,
    **{
        f"aten.{name}.default": _reshape
        for name in ("view", "reshape", "unsqueeze", "expand", "squeeze", "_unsafe_view")
    },
    "aten.flatten.using_ints": _reshape,
    "aten.unflatten.int": _reshape,
    "aten.slice.Tensor": _slice,
    "aten.narrow.default": _narrow,
    "aten.select.int": _select,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.split.sizes": _split,
    "aten.chunk.default": _split,
    "aten.unbind.int": _unbind,
    "aten.glu.default": _glu,
    "aten.einsum.default": _einsum,
    "aten.cat.default": _cat,
    "aten.concat.default": _cat,
    "aten.stack.default": _stack,
    "sym_float": lambda state, size: state.term(size).value,
    "_sym_sqrt": _size_root,
    "<built-in function pow>": _size_power,
    "<built-in function mul>": _number_row(_product_of_sizes),
    "<built-in function add>": _number_row(Graph.add),
    "<built-in function sub>": _number_row(Graph.sub),
    "<built-in function floordiv>": _number_row(Graph.div),
    "<built-in function truediv>": _number_row(Graph.div),
    "aten.arange.default": _arange,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "aten.squeeze.dim": _reshape,
    **{f"aten.{name}.default": _reshape for name in ("expand_as", "view_as", "reshape_as")},
    "aten.permute.default": _permute,
    "aten.movedim.int": lambda state, x, source, to: _permute(state, x, _moved(len(state.term(x).dims), source, to)),
    "aten.t.default": lambda state, x: _transpose(state, x, 0, 1),
    "aten.transpose.int": _transpose,
    "aten.contiguous.default": _same,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    **{f"aten.{name}.default": _same for name in ("lift_fresh", "lift_fresh_copy")},
    **{f"aten.{name}.default": _detach for name in ("detach", "detach_")},
    "aten.sym_size.int": _sym_size,
    "aten.sym_numel.default": lambda state, x: state.graph.size(axes_of(state.term(x).dims)),
}
