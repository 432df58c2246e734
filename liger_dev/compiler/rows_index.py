"""Rows that pick elements by an index tensor: gather, one-hot, and the losses over classes that are made of them.

An element that is picked is the sum of the row with all others masked away: no second load of the row, no atomic in
its gradient.
"""

from typing import Any

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import axes_of
from liger_dev.compiler.ir import is_const
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import broadcast
from liger_dev.compiler.lowering import result
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.rows_cast import CASTS
from liger_dev.compiler.rows_loss import MEAN
from liger_dev.compiler.rows_loss import NONE


def pick(g: Graph, value: Value, axis: str, index: Value) -> Value:
    """The element of `value` at `index` along `axis`; point-wise operations are done on what is picked."""
    if axis not in value.axes:
        return value
    if value.op == "log_softmax" and value.attr("over") == (axis,):
        x = value.args[0]
        return g.sub(pick(g, x, axis, index), g.make("logsumexp", x, over=(axis,)))
    if value.op == "index":
        return index
    if value.args and OPS[value.op].evaluate is not None and value.op != "cat":
        return g.rebuild(value, (pick(g, arg, axis, index) for arg in value.args))
    chosen = g.make("eq", g.make("index", axes=frozenset({axis}), dtype="int", axis=axis), index)
    picked = g.sum(g.where(chosen, value, g.const(0.0) if value.dtype == "float" else g.const(0)), [axis])
    if "picked" not in g.names.values():
        g.names.setdefault(picked, "picked")
    return picked


def _gather(state: Lowering, x: Any, dim: int, index: Any, **_: Any) -> Term:
    t, i = state.term(x), state.term(index)
    position = dim % len(t.dims)
    if len(t.dims[position]) != 1:
        raise state.refuse("it gathers along a dimension of merged or no axes")
    if i.dims[position]:
        raise state.refuse("it gathers more than one element a row", "gather one, or write it with a mask")
    dims = tuple(d if n != position else () for n, d in enumerate(t.dims))
    state.graph.picks[i.value, t.dims[position][0]] = None
    return result(state, pick(state.graph, t.value, t.dims[position][0], i.value), [t], dims)


def _one_hot(state: Lowering, x: Any, classes: Any = -1) -> Term:
    t = state.term(x)
    (axis,) = state.axis_of_size(state.shape(state.node)[-1])
    state.graph.picks[t.value, axis] = None
    position = state.graph.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
    chosen = state.graph.make("eq", position, t.value)
    users = [str(user.target) for user in state.node.users]
    cast = all(user in CASTS or user.startswith("aten._assert") for user in users)  # a truth value is a number by then
    return Term(chosen if cast else state.graph.make("int", chosen), (*t.dims, (axis,)))


def _class_axis(state: Lowering, t: Term) -> str:
    position = 1 if len(t.dims) > 1 else 0
    if len(t.dims[position]) != 1:
        raise state.refuse("classes must be one axis")
    return t.dims[position][0]


def _weighted(
    state: Lowering, losses: Value, share: Value, rows: tuple[Any, ...], reduction: int, terms: list[Term]
) -> Term:
    """Losses of rows, summed or divided by their shares as `reduction` says."""
    g = state.graph
    if reduction == NONE:
        return result(state, losses, terms, rows)
    axes = [axis for dim in rows for axis in dim]
    total = g.sum(state.name(losses, "row_loss"), axes)
    return result(state, g.div(total, g.sum(share, axes)) if reduction == MEAN else total, terms, ())


def _nll_loss(
    state: Lowering, x: Any, target: Any, weight: Any = None, reduction: int = MEAN, ignore: int = -100
) -> Term:
    t, label = state.term(x), state.term(target)
    axis, g = _class_axis(state, t), state.graph
    valid = state.name(g.make("ne", label.value, state.number(ignore)), "valid")
    g.picks[g.where(valid, label.value, g.const(0)), axis] = None
    share, loss = as_float(g, valid), g.neg(pick(g, t.value, axis, label.value))
    if weight is not None:
        own = pick(g, state.term(weight).value, axis, label.value)
        share, loss = g.mul(share, own), g.mul(own, loss)
    return _weighted(state, g.where(valid, loss, g.const(0.0)), share, label.dims, reduction, [t])


def _cross_entropy(
    state: Lowering,
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = MEAN,
    ignore: int = -100,
    smoothing: Any = 0.0,
) -> Term:
    t, label = state.term(x), state.term(target)
    if label.value.dtype == "float":
        return _soft_cross_entropy(state, t, label, weight, reduction, smoothing)
    axis, g = _class_axis(state, t), state.graph
    lse = state.name(g.make("logsumexp", t.value, over=(axis,)), "lse")
    valid = state.name(g.make("ne", label.value, state.number(ignore)), "valid")
    g.picks[g.where(valid, label.value, g.const(0)), axis] = None
    losses = g.sub(lse, state.name(pick(g, t.value, axis, label.value), "label_logit"))
    share = as_float(g, valid)
    if weight is not None:
        w = state.term(weight).value
        own = state.name(pick(g, w, axis, label.value), "label_weight")
        share, losses = g.mul(share, own), g.mul(own, losses)
        spread = g.sum(g.mul(w, g.sub(lse, t.value)), [axis])
    else:
        spread = g.sum(g.sub(lse, t.value), [axis])
    epsilon = state.number(smoothing)
    if not (epsilon.op == "const" and epsilon.attr("value") == 0):
        used = g.make("where_weighted", epsilon, spread) if epsilon.op == "param" else spread
        uniform = g.div(g.mul(epsilon, used), g.size([axis]))
        losses = g.add(g.mul(g.sub(g.const(1.0), epsilon), losses), uniform)
    # Not a product with 0: where no row is valid the mean is no number, but torch's gradient is 0.
    return _weighted(state, g.where(valid, losses, g.const(0.0)), share, label.dims, reduction, [t])


def _soft_cross_entropy(state: Lowering, t: Term, target: Term, weight: Any, reduction: int, smoothing: Any) -> Term:
    """The cross entropy with probabilities: rows count alike in the mean, whatever the classes' weights."""
    axis, g = _class_axis(state, t), state.graph
    share, epsilon = target.value, state.number(smoothing)
    if not is_const(epsilon, 0):
        share = g.add(g.mul(g.sub(g.const(1.0), epsilon), share), g.div(epsilon, g.size([axis])))
    if weight is not None:
        share = g.mul(share, state.term(weight).value)
    log_probs = state.name(g.make("log_softmax", t.value, over=(axis,)), "log_probs")
    losses = g.neg(g.sum(g.mul(share, log_probs), [axis]))
    position = next(i for i, dim in enumerate(t.dims) if dim == (axis,))
    rows = (*t.dims[:position], *t.dims[position + 1 :])
    return _weighted(state, losses, g.const(1.0), rows, reduction, [t, target])


def _index(state: Lowering, x: Any, indices: Any) -> Term:
    """`weight[target]`: elements of a vector, rows of a matrix; and `x[torch.arange(n), target]`: an element of each row."""
    t = state.term(x)
    found = [None if index is None else state.term(index) for index in indices]
    if any(term is not None and term.value.dtype == "bool" for term in found):
        raise state.refuse("how many elements a mask picks depends on data", "write it with torch.where")
    if len(found) == 1 < len(t.dims) and indices[0] is not None:
        return looked_up(state, t, indices[0])
    chosen = [i for i, term in enumerate(found) if term is not None and not _counts(t, i, term)]
    if len(chosen) != 1 or None in found or len(found) != len(t.dims) or len(t.dims[chosen[0]]) != 1:
        raise state.refuse("it picks by several indices, or along other dimensions than the first")
    (position,) = chosen
    index = found[position]
    assert index is not None, "checked above"
    state.graph.picks[index.value, t.dims[position][0]] = None
    value = pick(state.graph, t.value, t.dims[position][0], index.value)
    return result(state, value, [t], broadcast(state, [term for term in found if term is not None]))


def _counts(t: Term, position: int, index: Term) -> bool:
    """Whether an index is that of each element of a dimension in turn."""
    own = t.dims[position]
    return index.value.op == "index" and (index.value.attr("axis"),) == own


def _scatter(state: Lowering, x: Any, dim: int, index: Any, value: Any, **rest: Any) -> Term:
    """One element a row replaced, at an index."""
    t, i, v = state.term(x), state.term(index), state.term(value)
    position = dim % len(t.dims)
    if len(t.dims[position]) != 1 or i.dims[position] or rest:
        raise state.refuse("it replaces more than one element a row", "write it with a mask")
    (axis,) = t.dims[position]
    chosen = state.graph.make("eq", state.graph.make("index", axes=frozenset({axis}), dtype="int", axis=axis), i.value)
    return result(state, state.graph.where(chosen, v.value, t.value), [t], t.dims)


def _index_put(state: Lowering, x: Any, indices: Any, value: Any, accumulate: bool = False) -> Term:
    """`x[mask] = number`."""
    t, v = state.term(x), state.term(value)
    found = state.term(indices[0]) if len(indices) == 1 and indices[0] is not None else None
    if found is None or found.value.dtype != "bool" or accumulate or any(v.dims):
        raise state.refuse("it writes at indices", "write it with torch.where, or a mask and one number")
    return result(state, state.graph.where(found.value, v.value, t.value), [t], broadcast(state, [t, found]))


def looked_up(state: Lowering, table: Term, index: Any, skip: int = -1) -> Term:
    """The rows of a table that an input counts."""
    i, value = state.term(index), table.value
    if i.value.op != "input" or i.value.attr("slices") or i.value.dtype != "int":
        raise state.refuse("it picks rows by an index that is no input", "pass the index as an argument")
    if value.op != "input" or value.attr("slices") or any(len(dim) != 1 for dim in table.dims):
        raise state.refuse("it picks rows of what is no input", "pick the rows first")
    rest = axes_of(table.dims[1:])
    if set(axes_of(i.dims)) & set(axes_of(table.dims)):
        raise state.refuse("it picks rows by an index along an axis of the table itself")
    state.graph.picks[i.value, table.dims[0][0]] = None
    own = state.graph.dims_of(value.attr("name")) if value in state.graph.names else table.dims
    position = own.index(table.dims[0])  # behind dimensions of size 1, perhaps
    piece = Slice(axes_of(i.dims), at=i.value.attr("name"), skip=skip)
    axes = (*axes_of(i.dims), *rest)
    rows = state.graph.input(value.attr("name"), axes, value.dtype, ((position, piece),))
    return result(state, rows, [table], (*i.dims, *table.dims[1:]))


def _embedding(
    state: Lowering, weight: Any, index: Any, padding: int = -1, by_frequency: bool = False, sparse: bool = False
) -> Term:
    if by_frequency or sparse:
        raise state.refuse("its gradient is sparse or scaled by frequency")
    return looked_up(state, state.term(weight), index, padding)


def _index_select(state: Lowering, x: Any, dim: int, index: Any) -> Term:
    if dim != 0:
        raise state.refuse("it picks along another dimension than the first")
    return looked_up(state, state.term(x), index)


INDEXED: dict[str, Row] = {
    "aten.gather.default": _gather,
    "aten.index.Tensor": _index,
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.one_hot.default": _one_hot,
    "aten.scatter.value": _scatter,
    "aten.scatter.src": _scatter,
    "aten.index_put.default": _index_put,
    "aten.nll_loss.default": _nll_loss,
    "aten.nll_loss_nd.default": _nll_loss,
    "aten.cross_entropy_loss.default": _cross_entropy,
}
