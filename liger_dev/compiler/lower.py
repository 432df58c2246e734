"""An exported graph in, the forward Graph out: one row an ATen operation, axes instead of dimensions."""

import math

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.compiler.source_names import SourceMap
from liger_dev.compiler.trace import Traced
from liger_dev.errors import Unsupported
from liger_dev.records import Reference

Dims = tuple[str | None, ...]


@dataclass(frozen=True)
class Term:
    """A lowered tensor: its value, the axis of each dimension, and the inputs whose promotion is its dtype."""

    value: Value
    dims: Dims
    dtype_of: frozenset[str] = frozenset()


@dataclass
class Lowering:
    """The state of one walk over an exported graph."""

    graph: Graph
    traced: Traced
    reference: Reference
    source: SourceMap
    terms: dict[Any, Any] = field(default_factory=dict)
    axis_of: dict[str, str] = field(default_factory=dict)
    locals: dict[str, Term] = field(default_factory=dict)
    node: Any = None

    def refuse(self, reason: str, todo: str = "") -> Unsupported:
        where = self.source.describe(self.node) or self.reference.name
        return Unsupported(f"{self.node.target} is not supported: {reason}", f"node {self.node.name}, {where}", todo)

    def number(self, value: float | int | bool) -> Value:
        """A constant, or the scalar argument (or simple function of one) that its digits identify."""
        if isinstance(value, bool) or not isinstance(value, float) or not math.isfinite(value):
            return self.graph.const(value)
        g = self.graph
        for name, tagged in self.traced.tags.items():
            for number, make in _FORMS:
                if math.isclose(value, number(tagged), rel_tol=1e-11, abs_tol=0.0):
                    return make(g, g.make("param", dtype="float", name=name))
        return g.const(value)

    def term(self, arg: Any) -> Term:
        """An argument of a node as a term: a tensor, a size, or a number."""
        if isinstance(arg, torch.fx.Node):
            found = self.terms[arg]
            return found if isinstance(found, Term) else Term(found, ())
        return Term(self.number(arg), ())

    def shape(self, node: Any) -> list[Any]:
        return list(node.meta["val"].shape)

    def axis(self, size: Any) -> str | None:
        """The axis that a size of the exported graph stands for; None for 1."""
        text = str(size)
        if text == "1":
            return None
        if text not in self.axis_of:
            raise self.refuse(f"a dimension of size {text} is no axis of an input", "axes can't be split or merged yet")
        return self.axis_of[text]

    def name(self, value: Value, name: str) -> Value:
        """Suggests a name for a value that the reference left unnamed."""
        if value.op not in ("input", "const", "param", "size") and value not in self.graph.names:
            if name not in self.graph.names.values() and name not in {i.name for i in self.graph.inputs}:
                self.graph.names[value] = name
        return value


Form = tuple[Callable[[float], float], Callable[[Graph, Value], Value]]

_FORMS: tuple[Form, ...] = (
    (lambda p: p, lambda g, p: p),
    (lambda p: -p, lambda g, p: g.neg(p)),
    (lambda p: 1.0 - p, lambda g, p: g.sub(g.const(1.0), p)),
    (lambda p: 1.0 + p, lambda g, p: g.add(g.const(1.0), p)),
    (lambda p: p - 1.0, lambda g, p: g.sub(p, g.const(1.0))),
    (lambda p: 1.0 / p, lambda g, p: g.div(g.const(1.0), p)),
    (lambda p: 2.0 * p, lambda g, p: g.mul(g.const(2.0), p)),
    (lambda p: 0.5 * p, lambda g, p: g.mul(g.const(0.5), p)),
    (lambda p: p * p, lambda g, p: g.mul(p, p)),
)


def lower(graph: Graph, traced: Traced, reference: Reference) -> list[Output]:
    """Lowers an exported graph into `graph` and returns its outputs. Names are taken from the first one lowered.

    Raises:
        Unsupported: an operation has no row, or axes are split or merged; the node, its line and the reason are named.
    """
    state = Lowering(graph, traced, reference, SourceMap.read(traced.source))
    nodes = list(traced.graph.nodes)
    given = [tensor for tensor in reference.tensors if tensor.name not in traced.absent]
    placeholders = [node for node in nodes if node.op == "placeholder"]
    assert len(placeholders) == len(given), "one placeholder an input"
    first = not graph.inputs
    for node, tensor in zip(placeholders, given):
        dims = _input_dims(state, node, tensor.shape)
        dtype_of = frozenset({tensor.name}) if tensor.dtype == "float" else frozenset()
        value = graph.make("input", axes=frozenset(d for d in dims if d), dtype=tensor.dtype, name=tensor.name)
        state.terms[node] = state.locals[tensor.name] = Term(value, dims, dtype_of)
        if first:
            graph.inputs.append(Input(tensor.name, value, dims, tensor.optional))
            graph.names[value] = tensor.name
    returned = next(node for node in nodes if node.op == "output").args[0]
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    targets = state.source.targets([n for n in nodes if n.op == "call_function" and _is_tensor(n)])
    latest = {name: node for node, name in targets.items()}
    for node in nodes:
        if node.op == "call_function":
            state.node = node
            state.terms[node] = _lower_node(state, node, node in results)
            if node in targets and isinstance(state.terms[node], Term):
                state.locals[targets[node]] = state.terms[node]
                if first and latest[targets[node]] is node:
                    state.name(state.terms[node].value, targets[node])
    return _outputs(state, results)


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _input_dims(state: Lowering, node: Any, shape: tuple[str | int, ...]) -> Dims:
    state.node = node
    dims: list[str | None] = []
    for size, axis in zip(state.shape(node), shape):
        if isinstance(axis, int):
            if axis != 1:
                raise state.refuse(f"an input dimension has the fixed size {axis}", "name the axis instead")
            dims.append(None)
            continue
        known = state.axis_of.setdefault(str(size), axis)
        if known != axis:
            raise state.refuse(f"the reference makes axes {known} and {axis} equal", f"give both the name {known}")
        dims.append(axis)
    if len(set(dims) - {None}) != len([d for d in dims if d]):
        raise state.refuse("an input has the same axis twice", "name its axes differently")
    return tuple(dims)


def _outputs(state: Lowering, results: list[Any]) -> list[Output]:
    names = state.source.returned()
    outputs: list[Output] = []
    for i, node in enumerate(results):
        state.node = node
        if not isinstance(node, torch.fx.Node) or not _is_tensor(node):
            raise Unsupported("the reference returns something that is no tensor", state.reference.name)
        term = state.terms[node]
        if node.op == "placeholder":
            raise state.refuse("an output is an input unchanged")
        fallback = "y" if len(results) == 1 else f"y{i}"
        name = (names[i] if len(names) == len(results) else "") or state.graph.names.get(term.value, fallback)
        if name in {tensor.name for tensor in state.reference.tensors}:
            name = fallback
        low = node.meta["val"].dtype == torch.bfloat16
        value = term.value
        if value.op == "round" and set(value.attr("like")) == term.dtype_of and len(node.users) == 1:
            value = value.args[0]  # the store rounds
        order = [tensor.name for tensor in state.reference.tensors]
        state.name(value, name)
        if value is not term.value and state.graph.names.get(term.value) == name:
            state.graph.names[value] = state.graph.names.pop(term.value)
        outputs.append(Output(name, value, term.dims, tuple(sorted(term.dtype_of, key=order.index)) if low else ()))
    return outputs


def _lower_node(state: Lowering, node: Any, is_result: bool) -> Any:
    target = str(node.target)
    if target.startswith("aten._assert") or target.startswith("aten.sym_constrain"):
        return None
    if target not in ROWS:
        raise state.refuse("the compiler has no row for it", "see `liger-dev list --ops` for what it can express")
    result = ROWS[target](state, *node.args, **node.kwargs)
    if isinstance(result, Term) and is_result and len(node.users) > 1 and result.dtype_of:
        # An output that is used further is used as it is stored, so that backward, which loads it, sees the same.
        result = Term(_round(state, result.value, result.dtype_of), result.dims, result.dtype_of)
    return result


# Helpers of the rows


def _round(state: Lowering, value: Value, like: frozenset[str]) -> Value:
    return value if value.op == "round" else state.graph.make("round", value, like=tuple(sorted(like)))


def _broadcast(state: Lowering, terms: list[Term]) -> Dims:
    rank = max((len(t.dims) for t in terms), default=0)
    dims: list[str | None] = [None] * rank
    for t in terms:
        for i, axis in enumerate(t.dims, start=rank - len(t.dims)):
            if axis is None:
                continue
            if dims[i] not in (None, axis):
                raise state.refuse(f"axes {dims[i]} and {axis} meet in one dimension", f"give both the name {dims[i]}")
            dims[i] = axis
    return tuple(dims)


def _dtype_of(state: Lowering, terms: list[Term]) -> frozenset[str]:
    """Promotion: of tensors with dimensions if there are any; nothing once float32 takes over."""
    if state.node.meta["val"].dtype != torch.bfloat16:
        return frozenset()
    ranked = [t for t in terms if t.dims] or terms
    return frozenset().union(*(t.dtype_of for t in ranked))


def _result(state: Lowering, value: Value, terms: list[Term], dims: Dims | None = None) -> Term:
    return Term(value, _broadcast(state, terms) if dims is None else dims, _dtype_of(state, terms))


Row = Callable[..., Any]


def _pointwise(make: Callable[..., Value]) -> Row:
    """A row from a rule (graph, *values) -> value over broadcast tensors and numbers."""

    def row(state: Lowering, *args: Any) -> Term:
        terms = [state.term(arg) for arg in args]
        return _result(state, make(state.graph, *(t.value for t in terms)), terms)

    return row


def _op(name: str) -> Row:
    return _pointwise(lambda g, *values: g.make(name, *values))


def _scaled(make: Callable[[Graph, Value, Value], Value]) -> Row:
    """add and sub, whose second operand has a factor `alpha`."""

    def row(state: Lowering, a: Any, b: Any, alpha: Any = 1) -> Term:
        terms = [state.term(a), state.term(b)]
        second = state.graph.mul(terms[1].value, state.number(alpha))
        return _result(state, make(state.graph, terms[0].value, second), terms)

    return row


def _power(state: Lowering, base: Any, exponent: Any) -> Term:
    t, g = state.term(base), state.graph
    if isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= 8:
        return _result(state, g.power(t.value, int(exponent)), [t])
    if exponent in (0.5, -0.5):
        return _result(state, g.make("sqrt" if exponent > 0 else "rsqrt", t.value), [t])
    power = state.term(exponent)
    return _result(state, g.make("pow", t.value, power.value), [t, power])


def _silu(g: Graph, x: Value) -> Value:
    return g.mul(x, g.make("sigmoid", x))


def _gelu(state: Lowering, x: Any, approximate: str = "none") -> Term:
    t, g = state.term(x), state.graph
    v = t.value
    if approximate == "tanh":
        inner = g.mul(g.const(math.sqrt(2.0 / math.pi)), g.add(v, g.mul(g.const(0.044715), g.power(v, 3))))
        gate = g.add(g.const(1.0), state.name(g.make("tanh", inner), "tanh"))
    else:
        gate = g.add(g.const(1.0), state.name(g.make("erf", g.mul(v, g.const(math.sqrt(0.5)))), "erf"))
    return _result(state, g.mul(g.mul(g.const(0.5), v), gate), [t])


def _clamp(state: Lowering, x: Any, low: Any = None, high: Any = None) -> Term:
    t, g = state.term(x), state.graph
    value = t.value
    if low is not None:
        value = g.make("clamp_min", value, state.term(low).value)
    if high is not None:
        value = g.make("clamp_max", value, state.term(high).value)
    return _result(state, value, [t])


def _cast(state: Lowering, x: Any, dtype: Any = None, *rest: Any, **kwargs: Any) -> Term:
    t = state.term(x)
    dtype = dtype or kwargs.get("dtype") or state.node.meta["val"].dtype
    if t.value.dtype == "float" and dtype == torch.bfloat16:
        if state.node.args[0].meta["val"].dtype == torch.bfloat16:
            return t
        primary = next(tensor.name for tensor in state.reference.tensors if tensor.dtype == "float")
        owner = state.locals.get(state.source.cast_like(state.node))
        like = owner.dtype_of if owner and owner.dtype_of else frozenset({primary})
        return Term(_round(state, t.value, like), t.dims, like)
    if dtype in (torch.float32, torch.float64) or t.value.dtype == "float" and dtype.is_floating_point:
        value = t.value if t.value.dtype == "float" else state.graph.make("float", t.value)
        return Term(value, t.dims)
    if dtype == state.node.args[0].meta["val"].dtype:
        return t
    raise state.refuse(f"a cast to {dtype}")


def _over(state: Lowering, t: Term, dim: Any, keepdim: bool) -> tuple[frozenset[str], Dims]:
    """The axes that a reduction over dimensions sums away, and the dimensions that are left."""
    given = list(range(len(t.dims))) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    gone = {d % len(t.dims) for d in given}
    axes = frozenset(axis for i, axis in enumerate(t.dims) if i in gone and axis)
    left = tuple(None if i in gone else axis for i, axis in enumerate(t.dims) if keepdim or i not in gone)
    return axes, left


def _sum(state: Lowering, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Term:
    t = state.term(x)
    over, dims = _over(state, t, dim, keepdim)
    return _result(state, state.graph.sum(t.value, over), [t], dims)


def _mean_value(state: Lowering, value: Value, over: frozenset[str]) -> Value:
    g = state.graph
    return g.div(g.sum(value, over), g.size(over))


def _mean(state: Lowering, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Term:
    t = state.term(x)
    over, dims = _over(state, t, dim, keepdim)
    return _result(state, _mean_value(state, t.value, over), [t], dims)


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
        return _result(state, state.graph.make("sqrt", value) if root else value, [t], dims)

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
        return _result(state, state.graph.make(name, t.value, axes=t.value.axes, over=tuple(sorted(over))), [t], t.dims)

    return row


def _logsumexp(state: Lowering, x: Any, dim: Any, keepdim: bool = False) -> Term:
    t = state.term(x)
    over, dims = _over(state, t, dim, keepdim)
    return _result(state, state.graph.make("logsumexp", t.value, over=tuple(sorted(over))), [t], dims)


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
    return _result(state, value, terms)


def _rms_norm(state: Lowering, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Term:
    t, g = state.term(x), state.graph
    if eps is None:
        raise state.refuse("eps=None depends on the input's dtype", "give eps a number")
    over, _left = _over(state, t, list(range(-len(shape), 0)), True)
    mean_square = _mean_value(state, g.mul(t.value, t.value), over)
    rstd = state.name(g.make("rsqrt", g.add(mean_square, state.number(eps))), "rstd")
    terms = [t]
    value = _affine(state, state.name(g.mul(t.value, rstd), "x_hat"), terms, weight, None)
    return _result(state, value, terms)


def _reshape(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    """view, expand, unsqueeze, squeeze: the axes stay, in order; a split or merge is refused."""
    t = state.term(x)
    dims = tuple(state.axis(size) for size in state.shape(state.node))
    ordered = [axis for axis in dims if axis]
    if [axis for axis in ordered if axis in t.dims] != [axis for axis in t.dims if axis]:
        raise state.refuse("axes are split, merged or reordered by a view")
    return Term(t.value, dims, t.dtype_of)


def _permute(state: Lowering, x: Any, order: Any) -> Term:
    t = state.term(x)
    return Term(t.value, tuple(t.dims[i] for i in order), t.dtype_of)


def _transpose(state: Lowering, x: Any, a: int, b: int) -> Term:
    rank = len(state.term(x).dims)
    order = list(range(rank))
    order[a % rank], order[b % rank] = order[b % rank], order[a % rank]
    return _permute(state, x, order)


def _same(state: Lowering, x: Any, *_: Any, **__: Any) -> Term:
    return state.term(x)


def _detach(state: Lowering, x: Any) -> Term:
    t = state.term(x)
    return Term(state.graph.make("detach", t.value), t.dims, t.dtype_of)


def _sym_size(state: Lowering, x: Any, dim: int) -> Value:
    axis = state.term(x).dims[dim]
    return state.graph.size([axis]) if axis else state.graph.const(1)


_softplus = _pointwise(
    lambda g, x: g.add(g.make("clamp_min", x, g.const(0.0)), g.make("log1p", g.make("exp", g.neg(g.make("abs", x)))))
)

ROWS: dict[str, Row] = {
    "aten.add.Tensor": _scaled(Graph.add),
    "aten.add.Scalar": _scaled(Graph.add),
    "aten.sub.Tensor": _scaled(Graph.sub),
    "aten.sub.Scalar": _scaled(Graph.sub),
    "aten.rsub.Scalar": _pointwise(lambda g, a, b: g.sub(b, a)),
    "aten.mul.Tensor": _pointwise(Graph.mul),
    "aten.mul.Scalar": _pointwise(Graph.mul),
    "aten.div.Tensor": _pointwise(Graph.div),
    "aten.div.Scalar": _pointwise(Graph.div),
    "aten.neg.default": _pointwise(Graph.neg),
    "aten.reciprocal.default": _pointwise(lambda g, x: g.div(g.const(1.0), x)),
    "aten.square.default": _pointwise(lambda g, x: g.mul(x, x)),
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Tensor_Tensor": _op("pow"),
    **{f"aten.{name}.default": _op(name) for name in ("abs", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt")},
    **{f"aten.{name}.default": _op(name) for name in ("sigmoid", "tanh", "erf", "sin", "cos", "relu", "sign")},
    **{f"aten.{name}.default": _op(name) for name in ("maximum", "minimum")},
    **{
        f"aten.{name}.{kind}": _op(name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for kind in ("Tensor", "Scalar")
    },
    "aten.logical_and.default": _op("and"),
    "aten.logical_or.default": _op("or"),
    "aten.logical_not.default": _op("not"),
    "aten.where.self": _pointwise(Graph.where),
    "aten.where.ScalarOther": _pointwise(Graph.where),
    "aten.where.ScalarSelf": _pointwise(Graph.where),
    "aten.silu.default": _pointwise(_silu),
    "aten.gelu.default": _gelu,
    "aten.softplus.default": _softplus,
    "aten.clamp.default": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_max.default": lambda state, x, high: _clamp(state, x, None, high),
    "aten.to.dtype": _cast,
    "aten._to_copy.default": _cast,
    "aten.type_as.default": lambda state, x, other: _cast(state, x, other.meta["val"].dtype),
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
    **{
        f"aten.{name}.default": _reshape
        for name in ("view", "reshape", "unsqueeze", "expand", "squeeze", "_unsafe_view")
    },
    "aten.squeeze.dim": _reshape,
    "aten.expand_as.default": _reshape,
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.contiguous.default": _same,
    "aten.clone.default": _same,
    "aten.alias.default": _same,
    "aten.detach.default": _detach,
    "aten.sym_size.int": _sym_size,
}
