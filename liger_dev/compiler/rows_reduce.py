"""Rows of reductions and of what is made of them: sums, means, extrema, variances, softmax, norms of rows."""

from collections.abc import Callable
from typing import Any

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import broadcast
from liger_dev.compiler.lowering import dtype_of
from liger_dev.compiler.lowering import result
from liger_dev.compiler.lowering import truth

Axes = frozenset[str]
# So many of a row's largest elements are searched, each after those before it.
_SEARCHED = 4


def over_dims(t: Term, dim: Any, keepdim: bool) -> tuple[Axes, Dims]:
    """The axes that a reduction over dimensions sums away, and the dimensions that are left."""
    given = list(range(len(t.dims))) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    gone = {d % len(t.dims) for d in given}
    axes = frozenset(axis for i, dim in enumerate(t.dims) if i in gone for axis in dim)
    left = tuple(() if i in gone else dim for i, dim in enumerate(t.dims) if keepdim or i not in gone)
    return axes, left


def _reduction(make: Callable[[Graph, Value, Axes], Value]) -> Row:
    """A row from a rule (graph, value, axes) -> value; bools and integers are counted as floats."""

    def row(state: Lowering, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None, **_: Any) -> Term:
        t = state.term(x)
        over, dims = over_dims(t, dim, keepdim)
        return result(state, make(state.graph, as_float(state.graph, t.value), over), [t], dims)

    return row


def mean_value(state: Lowering, value: Value, over: Axes) -> Value:
    return _mean(state.graph, value, over)


def _mean(g: Graph, value: Value, over: Axes) -> Value:
    return g.div(g.sum(value, over), g.size(over))


# Extrema


def largest(g: Graph, value: Value, over: Axes) -> Value:
    """The maximum, NaN where there is one; an axis that `value` does not vary over adds nothing to it."""
    over &= value.axes
    return g.make("max", value, over=tuple(sorted(over)), nan=True) if over else value


def smallest(g: Graph, value: Value, over: Axes) -> Value:
    return g.neg(largest(g, g.neg(value), over))


def _with_index(sign: int) -> Row:
    """max(dim) and min(dim): their gradient belongs to the first element that attains the value, whose index they give."""

    def row(state: Lowering, x: Any, dim: int, keepdim: bool = False) -> tuple[Term, Term]:
        t, g = state.term(x), state.graph
        _, dims = over_dims(t, dim, keepdim)
        axis = _one_axis(state, t, dim)
        if axis not in t.value.axes:
            return _part(state, 0, t.value, t, dims), Term(g.const(0), dims)
        operand = as_float(g, t.value if sign > 0 else g.neg(t.value))
        value = g.make("max", operand, over=(axis,), ties="first", nan=True)
        position = Term(g.make("argmax", operand, over=(axis,)), dims)
        return _part(state, 0, value if sign > 0 else g.neg(value), t, dims), position

    return row


def _one_axis(state: Lowering, t: Term, dim: int) -> str:
    axes = t.dims[dim % len(t.dims)]
    if len(axes) != 1:
        raise state.refuse("positions are counted along a dimension of merged or no axes")
    return axes[0]


def _position(sign: int) -> Row:
    """argmax and argmin: the first element that attains the value."""

    def row(state: Lowering, x: Any, dim: int | None = None, keepdim: bool = False) -> Term:
        t = state.term(x)
        if dim is None and len(t.dims) != 1:
            raise state.refuse("it counts the elements of the whole tensor", "give it a dim")
        return _with_index(sign)(state, x, dim or 0, keepdim)[1]  # type: ignore[no-any-return]

    return row


def _sorted(state: Lowering, t: Term, dim: int, descending: bool) -> Value:
    """The elements along a dimension in falling order, or in rising order the negatives of the negatives."""
    g, axis = state.graph, _one_axis(state, t, dim)
    if axis not in t.value.axes:
        return t.value
    operand = as_float(g, t.value)
    ordered = g.make("sort", operand if descending else g.neg(operand), axis=axis)
    g.lines.setdefault(ordered, state.source.describe(state.node))
    return ordered if descending else g.neg(ordered)


def _sort(state: Lowering, x: Any, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Term, None]:
    t = state.term(x)
    return _part(state, 0, _sorted(state, t, dim, descending), t, t.dims), None


def _stable_sort(state: Lowering, x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(state, x, dim, descending)


def _several(state: Lowering, x: Any, k: int, dim: int, largest: bool) -> tuple[Term, None]:
    """The k largest elements, as positions of the sorted row; or searched one by one, where that is what is left."""
    t, g = state.term(x), state.graph
    axis, position = _one_axis(state, t, dim), dim % len(t.dims)
    if state.searching and k <= _SEARCHED and axis in t.value.axes:
        operand = as_float(g, t.value if largest else g.neg(t.value))
        found = [g.make("kth_largest", operand, over=(axis,), k=i) for i in range(1, k + 1)]
        rows = (*t.dims[:position], *t.dims[position + 1 :])
        into = state.new_axis(f"top_{k}", k, str(k))
        values = (value if largest else g.neg(value) for value in found)
        slices = tuple(Slice((), i) for i in range(k))
        joined = g.make("cat", *values, dtype="float", into=(into,), slices=slices)
        return _part(state, 0, joined, t, (*rows[:position], (into,), *rows[position:])), None
    own = state.new_axis(f"top_{k}", k, str(k))
    index = g.make("index", axes=frozenset({own}), dtype="int", axis=own)
    chosen = g.make("eq", g.make("index", axes=frozenset({axis}), dtype="int", axis=axis), index)
    value = g.sum(g.where(chosen, _sorted(state, t, dim, largest), g.const(0.0)), [axis])
    return _part(state, 0, value, t, (*t.dims[:position], (own,), *t.dims[position + 1 :])), None


def _kth(state: Lowering, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Term, None]:
    """The k-th smallest element."""
    t, g = state.term(x), state.graph
    _, dims = over_dims(t, dim, keepdim)
    operand = g.neg(as_float(g, t.value))
    return _part(state, 0, g.neg(g.make("kth_largest", operand, over=(_one_axis(state, t, dim),), k=k)), t, dims), None


def _topk(state: Lowering, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if k != 1:
        return _several(state, x, k, dim, largest)
    return _with_index(1 if largest else -1)(state, x, dim, True)


# Of two results


def _part(state: Lowering, position: int, value: Value, t: Term, dims: Dims) -> Term:
    """One of a node's several results."""
    return Term(value, dims, dtype_of(state, [t], state.node.meta["val"][position].dtype))


def _item(state: Lowering, several: Any, position: int) -> Any:
    found = state.terms[several][position]
    if found is None and state.node.users:
        raise state.refuse(f"the indices of {several.target} are used", "take its values only")
    return found


def _refused(reason: str, todo: str) -> Row:
    def row(state: Lowering, *_: Any, **__: Any) -> Term:
        raise state.refuse(reason, todo)

    return row


# Variances


def variance_value(state: Lowering, value: Value, over: Axes, correction: float) -> Value:
    g = state.graph
    mean = state.name(mean_value(state, value, over), "mean")
    centered = state.name(g.sub(value, mean), "centered")
    count = g.sub(g.size(over), g.const(int(correction))) if correction else g.size(over)
    return g.div(g.sum(g.mul(centered, centered), over), count)


def _var(root: bool, by: Callable[..., tuple[Any, Any, float, bool]], with_mean: bool = False) -> Row:
    """var, std (`root`) and, `with_mean`, the pair with the mean; `by` sorts torch's arguments."""

    def row(state: Lowering, *args: Any, **kwargs: Any) -> Any:
        x, dim, correction, keepdim = by(*args, **kwargs)
        t, g = state.term(x), state.graph
        over, dims = over_dims(t, dim, keepdim)
        value = state.name(variance_value(state, t.value, over, correction), "var")
        spread = g.make("norm_root", value) if root else value
        if not with_mean:
            return result(state, spread, [t], dims)
        return _part(state, 0, spread, t, dims), _part(state, 1, mean_value(state, t.value, over), t, dims)

    return row


def _by_correction(x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    return x, dim, 1 if correction is None else correction, keepdim


def _by_unbiased(x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return (x, None, int(dim), keepdim) if isinstance(dim, bool) else (x, dim, int(unbiased), keepdim)


# Softmax and its relatives


def _along(name: str) -> Row:
    """softmax and its relatives, along one dimension; a value of the whole row, with an adjoint of its own."""

    def row(state: Lowering, x: Any, dim: int, dtype: Any = None) -> Term:
        t = state.term(x)
        over, _ = over_dims(t, dim, True)
        operand = _unshifted(t.value, tuple(sorted(over)))
        return result(state, state.graph.make(name, operand, axes=operand.axes, over=tuple(sorted(over))), [t], t.dims)

    return row


def _unshifted(value: Value, over: tuple[str, ...]) -> Value:
    """`x` of `x - max(x)`, whose softmax is the same: its kernel takes the maximum off anyway."""
    if value.op != "sub" or value.args[1].op != "max":
        return value
    x, peak = value.args
    return x if peak.args == (x,) and peak.attr("over") == over else value


def _logsumexp(state: Lowering, x: Any, dim: Any, keepdim: bool = False) -> Term:
    t = state.term(x)
    over, dims = over_dims(t, dim, keepdim)
    return result(state, state.graph.make("logsumexp", t.value, over=tuple(sorted(over)), infinite=True), [t], dims)


def _scan(name: str) -> Row:
    """cumsum and cumprod; of what is the same along the axis, a multiple or a power."""

    def row(state: Lowering, x: Any, dim: int, dtype: Any = None) -> Term:
        t, g = state.term(x), state.graph
        dim_axes = t.dims[dim % len(t.dims)] if t.dims else ()
        if len(dim_axes) != 1:
            raise state.refuse("it runs along a dimension of merged or no axes")
        (axis,) = dim_axes
        value = as_float(g, t.value)
        if axis in value.axes:
            return result(state, g.make(name, value, axis=axis, reverse=False), [t], t.dims)
        position = g.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
        count = g.make("float", g.add(position, g.const(1)))
        return result(state, g.mul(value, count) if name == "cumsum" else g.make("pow", value, count), [t], t.dims)

    return row


def _product(state: Lowering, x: Any, dim: int, keepdim: bool = False, dtype: Any = None) -> Term:
    """The product along a dimension: the last of its running products, whose gradient stands zeros; 1 of no elements."""
    t, g = state.term(x), state.graph
    _, dims = over_dims(t, dim, keepdim)
    axis, value = _one_axis(state, t, dim), as_float(g, t.value)
    if axis not in value.axes:
        return result(state, g.make("pow", value, as_float(g, g.size([axis]))), [t], dims)
    index = g.make("index", axes=frozenset({axis}), dtype="int", axis=axis)
    last = g.make("eq", index, g.sub(g.size([axis]), g.const(1)))
    running = g.make("cumprod", value, axis=axis, reverse=False)
    product = g.sum(g.where(last, running, g.const(0.0)), [axis])
    return result(state, g.where(g.make("eq", g.size([axis]), g.const(0)), g.const(1.0), product), [t], dims)


# Norms over the last dimensions


def affine(state: Lowering, value: Value, terms: list[Term], weight: Any, bias: Any) -> Value:
    """The value times weight plus bias; torch's norms keep the dtype of their input, whatever the parameters have."""
    for part, make in ((weight, state.graph.mul), (bias, state.graph.add)):
        if part is not None:
            terms.append(state.term(part))
            value = make(value, terms[-1].value)
    return value


def _layer_norm(
    state: Lowering, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Term:
    t, g = state.term(x), state.graph
    over, _left = over_dims(t, list(range(-len(shape), 0)), True)
    variance = variance_value(state, t.value, over, 0)
    centered = g.sub(t.value, mean_value(state, t.value, over))
    rstd = state.name(g.make("rsqrt", g.add(variance, state.number(eps))), "rstd")
    terms = [t]
    value = affine(state, state.name(g.mul(centered, rstd), "x_hat"), terms, weight, bias)
    return result(state, value, [t], broadcast(state, terms))


def _rms_norm(state: Lowering, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Term:
    t, g = state.term(x), state.graph
    if eps is None:
        raise state.refuse("eps=None depends on the input's dtype", "give eps a number")
    over, _left = over_dims(t, list(range(-len(shape), 0)), True)
    mean_square = mean_value(state, g.mul(t.value, t.value), over)
    rstd = state.name(g.make("rsqrt", g.add(mean_square, state.number(eps))), "rstd")
    terms = [t]
    value = affine(state, state.name(g.mul(t.value, rstd), "x_hat"), terms, weight, None)
    return result(state, value, [t], broadcast(state, terms))


def _count(g: Graph, value: Value, over: Axes) -> Value:
    return g.sum(g.make("float", truth(g, value)), over)


def _any(g: Graph, value: Value, over: Axes) -> Value:
    return g.make("gt", _count(g, value, over), g.const(0.0))


def _all(g: Graph, value: Value, over: Axes) -> Value:
    return g.make("eq", g.sum(g.make("float", g.make("not", truth(g, value))), over), g.const(0.0))


REDUCTIONS: dict[str, Row] = {
    "<built-in function getitem>": _item,
    "aten.sum.default": _reduction(Graph.sum),
    "aten.sum.dim_IntList": _reduction(Graph.sum),
    "aten.mean.default": _reduction(_mean),
    "aten.mean.dim": _reduction(_mean),
    **{f"aten.{name}.default": _reduction(largest) for name in ("amax", "max")},
    **{f"aten.{name}.default": _reduction(smallest) for name in ("amin", "min")},
    "aten.max.dim": _with_index(1),
    "aten.min.dim": _with_index(-1),
    **{f"aten.any.{kind}": _reduction(_any) for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": _reduction(_all) for kind in ("default", "dim", "dims")},
    **{f"aten.count_nonzero.{kind}": _reduction(_count) for kind in ("default", "dim_IntList")},
    "aten.var.correction": _var(False, _by_correction),
    "aten.var.dim": _var(False, _by_unbiased),
    "aten.var.default": _var(False, _by_unbiased),
    "aten.std.correction": _var(True, _by_correction),
    "aten.std.dim": _var(True, _by_unbiased),
    "aten.std.default": _var(True, _by_unbiased),
    "aten.var_mean.correction": _var(False, _by_correction, True),
    "aten.var_mean.dim": _var(False, _by_unbiased, True),
    "aten.std_mean.correction": _var(True, _by_correction, True),
    "aten.std_mean.dim": _var(True, _by_unbiased, True),
    "aten.softmax.int": _along("softmax"),
    "aten.log_softmax.int": _along("log_softmax"),
    "aten.cumsum.default": _scan("cumsum"),
    "aten.cumprod.default": _scan("cumprod"),
    "aten.logsumexp.default": _logsumexp,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten.argmax.default": _position(1),
    "aten.argmin.default": _position(-1),
    "aten.topk.default": _topk,
    "aten.sort.default": _sort,
    "aten.sort.stable": _stable_sort,
    "aten.kthvalue.default": _kth,
    "aten.prod.default": _refused("it is the product of the whole tensor", "give it a dim"),
    "aten.prod.dim_int": _product,
}
