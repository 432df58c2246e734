"""Rows of reductions and of what is made of them: sums, means, variances, softmax, norms."""

from collections.abc import Callable
from typing import Any

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Value
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import result


def _over(state: Lowering, t: Term, dim: Any, keepdim: bool) -> tuple[frozenset[str], Dims]:
    """The axes that a reduction over dimensions sums away, and the dimensions that are left."""
    given = list(range(len(t.dims))) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    gone = {d % len(t.dims) for d in given}
    axes = frozenset(axis for i, dim in enumerate(t.dims) if i in gone for axis in dim)
    left = tuple(() if i in gone else dim for i, dim in enumerate(t.dims) if keepdim or i not in gone)
    return axes, left


def _sum(state: Lowering, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Term:
    t = state.term(x)
    over, dims = _over(state, t, dim, keepdim)
    return result(state, state.graph.sum(t.value, over), [t], dims)


def _mean_value(state: Lowering, value: Value, over: frozenset[str]) -> Value:
    g = state.graph
    return g.div(g.sum(value, over), g.size(over))


def _mean(state: Lowering, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Term:
    t = state.term(x)
    over, dims = _over(state, t, dim, keepdim)
    return result(state, _mean_value(state, t.value, over), [t], dims)


def _variance(state: Lowering, value: Value, over: frozenset[str], correction: float) -> Value:
    g = state.graph
    mean = state.name(_mean_value(state, value, over), "mean")
    centered = state.name(g.sub(value, mean), "centered")
    count = g.sub(g.size(over), g.const(int(correction))) if correction else g.size(over)
    return g.div(g.sum(g.mul(centered, centered), over), count)


def _var(root: bool, x_dim_correction: Callable[..., tuple[Any, Any, float, bool]]) -> Row:
    def row(state: Lowering, *args: Any, **kwargs: Any) -> Term:
        x, dim, correction, keepdim = x_dim_correction(*args, **kwargs)
        t = state.term(x)
        over, dims = _over(state, t, dim, keepdim)
        value = state.name(_variance(state, t.value, over, correction), "var")
        return result(state, state.graph.make("sqrt", value) if root else value, [t], dims)

    return row


def _by_correction(x: Any, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    return x, dim, 1 if correction is None else correction, keepdim


def _by_unbiased(x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return x, dim, int(unbiased), keepdim


def _along(name: str) -> Row:
    """softmax and its relatives, along one dimension; a value of the whole row, with an adjoint of its own."""

    def row(state: Lowering, x: Any, dim: int, dtype: Any = None) -> Term:
        t = state.term(x)
        over, _ = _over(state, t, dim, True)
        return result(state, state.graph.make(name, t.value, axes=t.value.axes, over=tuple(sorted(over))), [t], t.dims)

    return row


def _logsumexp(state: Lowering, x: Any, dim: Any, keepdim: bool = False) -> Term:
    t = state.term(x)
    over, dims = _over(state, t, dim, keepdim)
    return result(state, state.graph.make("logsumexp", t.value, over=tuple(sorted(over))), [t], dims)


def _affine(state: Lowering, value: Value, terms: list[Term], weight: Any, bias: Any) -> Value:
    for part, make in ((weight, state.graph.mul), (bias, state.graph.add)):
        if part is not None:
            terms.append(state.term(part))
            value = make(value, terms[-1].value)
    return value


def _layer_norm(
    state: Lowering, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Term:
    t, g = state.term(x), state.graph
    over, _left = _over(state, t, list(range(-len(shape), 0)), True)
    variance = _variance(state, t.value, over, 0)
    centered = g.sub(t.value, _mean_value(state, t.value, over))
    rstd = state.name(g.make("rsqrt", g.add(variance, state.number(eps))), "rstd")
    terms = [t]
    value = _affine(state, state.name(g.mul(centered, rstd), "x_hat"), terms, weight, bias)
    return result(state, value, terms)


def _rms_norm(state: Lowering, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Term:
    t, g = state.term(x), state.graph
    if eps is None:
        raise state.refuse("eps=None depends on the input's dtype", "give eps a number")
    over, _left = _over(state, t, list(range(-len(shape), 0)), True)
    mean_square = _mean_value(state, g.mul(t.value, t.value), over)
    rstd = state.name(g.make("rsqrt", g.add(mean_square, state.number(eps))), "rstd")
    terms = [t]
    value = _affine(state, state.name(g.mul(t.value, rstd), "x_hat"), terms, weight, None)
    return result(state, value, terms)


REDUCTIONS: dict[str, Row] = {
    "aten.sum.default": _sum,
    "aten.sum.dim_IntList": _sum,
    "aten.mean.default": _mean,
    "aten.mean.dim": _mean,
    "aten.var.correction": _var(False, _by_correction),
    "aten.var.dim": _var(False, _by_unbiased),
    "aten.std.correction": _var(True, _by_correction),
    "aten.std.dim": _var(True, _by_unbiased),
    "aten.softmax.int": _along("softmax"),
    "aten.log_softmax.int": _along("log_softmax"),
    "aten.logsumexp.default": _logsumexp,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
}
