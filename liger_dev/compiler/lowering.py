"""What lowering knows while it walks an exported graph, and the helpers that rows are written with."""

import math

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.reserved import local_name
from liger_dev.compiler.scalar_forms import scalar_form
from liger_dev.compiler.shapes import dividend
from liger_dev.compiler.shapes import factor
from liger_dev.compiler.source_names import SourceMap
from liger_dev.compiler.trace import Traced
from liger_dev.errors import Unsupported
from liger_dev.records import Reference


@dataclass(frozen=True)
class Term:
    """A lowered tensor: its value, the axis of each dimension, and the inputs whose promotion is its dtype."""

    value: Value
    dims: Dims
    dtype_of: frozenset[str] = frozenset()


@dataclass
class Lowering:
    """The state of one walk over an exported graph. `searching`: a row's largest elements are searched one by one."""

    graph: Graph
    traced: Traced
    reference: Reference
    source: SourceMap
    terms: dict[Any, Any] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    slicer: Any = None
    searching: bool = False
    locals: dict[str, Term] = field(default_factory=dict)
    node: Any = None

    def refuse(self, reason: str, todo: str = "") -> Unsupported:
        where = self.source.describe(self.node) or self.reference.name
        return Unsupported(f"{self.node.target} is not supported: {reason}", f"node {self.node.name}, {where}", todo)

    def number(self, value: float | int | bool) -> Value:
        """A constant, or the scalar argument (or simple function of one) that its digits identify."""
        g = self.graph
        if isinstance(value, int) and not isinstance(value, bool):
            name = next((n for n, tagged in self.traced.tags.items() if type(tagged) is int and tagged == value), "")
            return g.make("param", dtype="int", name=name) if name else g.const(value)
        if isinstance(value, complex):
            raise self.refuse("a number in it is complex", "take powers of numbers above 0")
        if isinstance(value, bool) or not math.isfinite(value):
            return g.const(value)
        tags = {name: tag for name, tag in self.traced.tags.items() if isinstance(tag, float)}
        return scalar_form(g, value, tags) or g.const(value)

    def term(self, arg: Any) -> Term:
        """An argument of a node as a term: a tensor, a size, or a number."""
        if isinstance(arg, torch.fx.Node):
            found = self.terms[arg]
            return found if isinstance(found, Term) else Term(found, ())
        return Term(self.number(arg), ())

    def shape(self, node: Any) -> list[int]:
        """The sizes that a node's result had while it was traced."""
        return [hint(size) for size in node.meta["val"].shape]

    def extent(self, dim: tuple[str, ...]) -> int:
        """The size of a dimension while it was traced."""
        return math.prod(self.hints[axis] for axis in dim)

    def axis_of_size(self, size: int) -> tuple[str, ...]:
        """The dimension that a traced size stands for: sizes of axes are pairwise different."""
        if size == 1:
            return ()
        found = next((axis for axis, number in self.hints.items() if number == size), None)
        if found is None:
            raise self.refuse(f"a dimension of traced size {size} is no axis of an input")
        return (found,)

    def new_axis(self, name: str, extent: int, size: str) -> str:
        """A new axis; `size` is its size as a Python expression over the tensor arguments."""
        alike = [axis for axis, text in self.graph.sizes.items() if text == size and self.hints.get(axis) == extent]
        known = next((axis for axis in alike if axis not in self.parts), "")
        if known:
            return known
        while name in self.hints:
            name += "_"
        self.hints[name] = extent
        self.graph.sizes[name] = size
        return name

    def part_axis(self, axis: str, length: int, fixed: bool = False) -> str:
        """The axis of a part of an axis: of `fixed` length, or one that is known by its size, or a new one."""
        if fixed:
            return self.new_axis(f"{axis}_of_{length}", length, str(length))
        known = next((name for name, extent in self.hints.items() if extent == length), "")
        if known:
            return known
        total, size = self.hints[axis], self.graph.sizes[axis]
        if length == 0:
            raise self.refuse(f"an empty part of {axis}")
        if total % length == 0:
            part = str(length) if size.isdigit() else f"{dividend(size)} // {total // length}"
            return self.new_axis(f"{axis}_{total // length}", length, part)
        rest = next((name for name, extent in self.hints.items() if extent == total - length), "")
        if rest:
            return self.new_axis(f"{axis}_rest", length, f"{size} - {factor(self.graph.sizes[rest])}")
        raise self.refuse(f"a slice of {length} of the {total} elements that {axis} was traced with")

    def longer_axis(self, axis: str, more: int) -> str:
        """The axis that has so many elements more than another one, which may itself be known by its length."""
        base, own = self.graph.lengths.get(axis, (axis, 0))
        if own + more == 0:
            return base
        number = abs(own + more)
        name = f"{base}_{'less' if own + more < 0 else 'plus'}_{number}"
        size = self.graph.sizes[base]
        if name not in self.graph.lengths:
            self.graph.lengths[name] = (base, own + more)
            self.graph.sizes[name] = f"max({size} - {number}, 0)" if own + more < 0 else f"{size} + {number}"
        self.hints[name] = self.hints[base] + own + more
        return name

    def start_of(self, axis: str, low: int, own: str) -> tuple[int, tuple[str, ...]]:
        """Where a slice begins, as a number or as sizes of axes."""
        if low == 0:
            return 0, ()
        extent = self.hints[own]
        if low % extent == 0:
            return 0, (own,) * (low // extent)
        before = next((name for name, size in self.hints.items() if size == low), "")
        if before:
            return 0, (before,)
        raise self.refuse(f"a slice of {axis} that begins at element {low} of {self.hints[axis]}")

    def whole_axis(self, parts: list[tuple[str, ...]], total: int) -> str:
        """The axis that pieces make together."""
        known = next((name for name, extent in self.hints.items() if extent == total), "")
        if known:
            return known
        sizes = [" * ".join(factor(self.graph.sizes[axis]) for axis in part) or "1" for part in parts]
        return self.new_axis("_".join(axis for part in parts for axis in part), total, " + ".join(sizes))

    def name(self, value: Value, name: str) -> Value:
        """Suggests a name for a value that the reference left unnamed."""
        name = local_name(name, (tensor.name for tensor in self.reference.tensors))
        whole = value.op == "input" and not value.attr("slices")
        if value.op not in ("const", "param", "size", "index") and not whole and value not in self.graph.names:
            if name not in self.graph.names.values() and name not in {i.name for i in self.graph.inputs}:
                self.graph.names[value] = name
        return value


class SplitAxis(Exception):
    """A view splits an axis: lowering starts again with the axis replaced by its parts everywhere."""

    def __init__(self, axis: str, sizes: tuple[int, int], static: tuple[bool, bool]) -> None:
        super().__init__(axis)
        self.axis, self.sizes, self.static = axis, sizes, static


class Indivisible(Unsupported):
    """A view splits an axis into a number of parts that the size it was traced with is no multiple of."""

    def __init__(self, refusal: Unsupported, axis: str, parts: int) -> None:
        super().__init__(refusal.what, refusal.where, refusal.todo)
        self.axis, self.parts = axis, parts


class SameAxis(Exception):
    """Two axes of the same fixed size meet: lowering starts again with one in place of the other."""

    def __init__(self, axis: str, kept: str) -> None:
        super().__init__(axis)
        self.axis, self.kept = axis, kept


def hint(size: Any) -> int:
    """A size of an exported graph as the number that it had while it was traced."""
    return size if isinstance(size, int) else int(size.node.hint)


def rounded(state: Lowering, value: Value, like: frozenset[str]) -> Value:
    return value if value.op == "round" else state.graph.make("round", value, like=tuple(sorted(like)))


def broadcast(state: Lowering, terms: list[Term]) -> Dims:
    rank = max((len(t.dims) for t in terms), default=0)
    dims: list[tuple[str, ...]] = [()] * rank
    for t in terms:
        for i, axes in enumerate(t.dims, start=rank - len(t.dims)):
            if not axes:
                continue
            if dims[i] not in ((), axes):
                split_merged(state, dims[i], axes)
                join_equal(state, dims[i], axes)
                raise state.refuse(f"axes {' '.join(dims[i])} and {' '.join(axes)} meet in one dimension")
            dims[i] = axes
    flat = [axis for dim in dims for axis in dim]
    if twice := next((axis for axis in flat if flat.count(axis) > 1), ""):
        raise state.refuse(f"{twice} would be two dimensions of one tensor", "name the inputs' axes differently")
    return tuple(dims)


def split_merged(state: Lowering, a: tuple[str, ...], b: tuple[str, ...]) -> None:
    """Splits the axis that meets merged axes of the same size."""
    for one, other in ((a, b), (b, a)):
        if len(one) == 1 and len(other) == 2 and state.extent(one) == state.extent(other):
            sizes = state.hints[other[0]], state.hints[other[1]]
            raise SplitAxis(one[0], sizes, (False, state.graph.is_given(other[1])))


def join_equal(state: Lowering, a: tuple[str, ...], b: tuple[str, ...]) -> None:
    """Takes two axes whose size is the same number for one."""
    sizes = state.graph.sizes
    if len(a) == len(b) == 1 and sizes[a[0]].isdigit() and sizes[a[0]] == sizes[b[0]]:
        raise SameAxis(b[0], a[0])


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
