"""Rows that compute nothing: views, concatenations, permutations; slices and sizes have modules of their own."""

from collections.abc import Callable
from typing import Any

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.lowering import Indivisible
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import SplitAxis
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import dtype_of
from liger_dev.compiler.lowering import result
from liger_dev.compiler.rows_cast import CASTS
from liger_dev.compiler.rows_move import MOVES
from liger_dev.compiler.rows_move import overlaid
from liger_dev.compiler.rows_move import overlays
from liger_dev.compiler.rows_size import SIZES
from liger_dev.compiler.rows_slice import SLICES
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


def _cat(state: Lowering, tensors: Any, dim: int = 0) -> Term:
    terms = [state.term(tensor) for tensor in tensors]
    return concatenated(state, terms, dim % len(terms[0].dims))


def concatenated(state: Lowering, terms: list[Term], position: int) -> Term:
    """Terms side by side along a dimension of the node's result."""
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


SHAPES: dict[str, Row] = {
    **CASTS,
    **MOVES,
    **SIZES,
    **SLICES,
    **{
        f"aten.{name}.default": _reshape
        for name in ("view", "reshape", "unsqueeze", "expand", "squeeze", "_unsafe_view")
    },
    "aten.flatten.using_ints": _reshape,
    "aten.unflatten.int": _reshape,
    "aten.einsum.default": _einsum,
    "aten.cat.default": _cat,
    "aten.concat.default": _cat,
    "aten.stack.default": _stack,
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
}
