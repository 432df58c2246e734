"""What lowering knows while it walks an exported graph, and the helpers that rows are written with."""

import math

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch

from liger_dev.compiler.ir import Graph
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


def rounded(state: Lowering, value: Value, like: frozenset[str]) -> Value:
    return value if value.op == "round" else state.graph.make("round", value, like=tuple(sorted(like)))


def broadcast(state: Lowering, terms: list[Term]) -> Dims:
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


def dtype_of(state: Lowering, terms: list[Term], dtype: torch.dtype | None = None) -> frozenset[str]:
    """Promotion: of tensors with dimensions if there are any; nothing once float32 takes over. `dtype` is the node's
    own unless given."""
    if (dtype or state.node.meta["val"].dtype) != torch.bfloat16:
        return frozenset()
    ranked = [t for t in terms if t.dims] or terms
    return frozenset().union(*(t.dtype_of for t in ranked))


def result(state: Lowering, value: Value, terms: list[Term], dims: Dims | None = None) -> Term:
    """A node's value as a term, over the dimensions that its operands broadcast to unless others are given."""
    state.graph.lines.setdefault(value, state.source.describe(state.node))
    return Term(value, broadcast(state, terms) if dims is None else dims, dtype_of(state, terms))


Row = Callable[..., Any]


def pointwise(make: Callable[..., Value]) -> Row:
    """A row from a rule (graph, *values) -> value over broadcast tensors and numbers."""

    def row(state: Lowering, *args: Any) -> Term:
        terms = [state.term(arg) for arg in args]
        return result(state, make(state.graph, *(t.value for t in terms)), terms)

    return row


def operation(name: str) -> Row:
    return pointwise(lambda g, *values: g.make(name, *values))


def function(name: str) -> Row:
    """A row of a mathematical function, which takes integers and bools as floats."""
    return pointwise(lambda g, *values: g.make(name, *(as_float(g, value) for value in values)))


def as_float(g: Graph, value: Value) -> Value:
    if value.dtype == "float":
        return value
    return g.const(float(value.attr("value"))) if value.op == "const" else g.make("float", value)


def truth(g: Graph, value: Value) -> Value:
    """Whether a number is other than 0."""
    if value.dtype == "bool":
        return value
    return g.make("ne", value, g.const(0.0 if value.dtype == "float" else 0))


def scaled(make: Callable[[Graph, Value, Value], Value]) -> Row:
    """add and sub, whose second operand has a factor `alpha`."""

    def row(state: Lowering, a: Any, b: Any, alpha: Any = 1) -> Term:
        terms = [state.term(a), state.term(b)]
        second = terms[1].value if alpha == 1 else state.graph.mul(terms[1].value, state.number(alpha))
        return result(state, make(state.graph, terms[0].value, second), terms)

    return row
