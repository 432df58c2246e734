"""The compiler's intermediate form: a graph of hash-consed values over named axes.

A value varies over a set of axes (`x` over {B, T, H}, its mean over {B, T}); broadcasting has no nodes. Building the
same value twice gives the same object, so common sub-expressions are shared and identity is equality.
"""

import math

from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from typing import Any

from liger_dev.compiler.ops import OPS

Axes = frozenset[str]
# The axes of each dimension of a tensor: one as a rule, several where a view merges them, none for size 1.
Dims = tuple[tuple[str, ...], ...]


def axes_of(dims: Dims) -> tuple[str, ...]:
    """All axes of a tensor, in memory order."""
    return tuple(axis for dim in dims for axis in dim)


@dataclass(frozen=True)
class Slice:
    """How a dimension of a tensor is read: elements `start + step * i`, where `start` is `first` plus the sizes of the
    axes in `after`. A slice without axes is one element. One that may leave the dimension says what is `outside`: "zero",
    or "wrap", the dimension once more. If `at` is given, the elements are those that the input of that name counts; one at
    `skip` has no gradient."""

    axes: tuple[str, ...]
    first: int = 0
    after: tuple[str, ...] = ()
    step: int = 1
    outside: str = ""
    at: str = ""
    skip: int = -1

    @property
    def reversed(self) -> bool:
        """Whether it is a whole axis, last element first."""
        return self.step == -1 and self.first == -1 and self.after == self.axes

    @staticmethod
    def counted(cut: "Slices") -> "tuple[int, Slice]":
        """The dimension that an input counts the elements of, and its slice."""
        return next((position, piece) for position, piece in cut if piece.at)

    def of(self, inner: "Slice") -> "Slice":
        """The slice `inner` of what this slice reads."""
        assert self.step == 1 or not inner.after, "a start that depends on sizes inside a strided slice"
        return Slice(
            inner.axes, self.first + self.step * inner.first, (*self.after, *inner.after), self.step * inner.step
        )


# The dimensions of a tensor that are read in part, by position.
Slices = tuple[tuple[int, Slice], ...]


@dataclass(frozen=True, eq=False)
class Value:
    """One equation: an operation (a row of `ops.OPS`) applied to values. `dtype` is float, int or bool."""

    op: str
    args: tuple["Value", ...]
    attrs: tuple[tuple[str, Any], ...]
    axes: Axes
    dtype: str
    index: int

    def attr(self, name: str) -> Any:
        return dict(self.attrs)[name]

    def __repr__(self) -> str:
        return f"%{self.index}:{self.op}[{','.join(sorted(self.axes))}]"


@dataclass(frozen=True)
class Input:
    """A tensor argument. `neutral` is what an optional input stands for when it is None: a factor 1 or a term 0."""

    name: str
    value: Value
    dims: Dims
    optional: bool = False
    neutral: float | None = None


@dataclass(frozen=True)
class Output:
    """A result: `dtype_of` names the inputs whose promotion is its dtype; empty means float32. One that is `cast_down`
    has a cast of the reference's as its last step: autograd keeps what was before it. Whole numbers are stored as `whole`."""

    name: str
    value: Value
    dims: Dims
    dtype_of: tuple[str, ...]
    cast_down: bool = False
    whole: str = "int64"


@dataclass
class Graph:
    """All values of one operation, forward and backward; `names` and `lines` come from the reference's source, `sizes`
    are axes' sizes as Python expressions over the arguments, `extents` those that they were traced with. An axis
    in `lengths` is as long as another one and so many elements more, one in `least` has to be so long. `picks` are what
    elements are picked by, each with the axis that it must not leave. Scalars `at_least_zero` mean something else below.
    Autograd has a gradient, be it zero, for the inputs that are `reached`. Axes that are `fixed` were traced as numbers."""

    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    gradients: dict[tuple[str, Slices], Value] = field(default_factory=dict)
    names: dict[Value, str] = field(default_factory=dict)
    lines: dict[Value, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, tuple[str, int]] = field(default_factory=dict)
    picks: dict[tuple[Value, str], None] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    at_least_zero: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    fixed: tuple[str, ...] = ()
    _values: dict[tuple[Any, ...], Value] = field(default_factory=dict)

    def make(self, op: str, *args: Value, axes: Axes | None = None, dtype: str | None = None, **attrs: Any) -> Value:
        """The value `op(*args)`, interned. `axes` and `dtype` follow from the arguments unless given."""
        row = OPS[op]
        assert row.arity is None or len(args) == row.arity, f"{op} takes {row.arity} arguments, not {len(args)}"
        if axes is None:
            axes = frozenset().union(*(arg.axes for arg in args))
            if row.reduces:
                axes -= frozenset(attrs["over"])
            if op == "cat":
                axes = (axes - {a for piece in attrs["slices"] for a in piece.axes}) | frozenset(attrs["into"])
        if dtype is None:
            dtype = row.dtype or _promote(args)
        packed = tuple(sorted(attrs.items()))
        key = (op, tuple(arg.index for arg in args), tuple((k, type(v), v) for k, v in packed), axes, dtype)
        if key not in self._values:
            self._values[key] = Value(op, args, packed, axes, dtype, len(self._values))
        return self._values[key]

    def longer(self, axis: str, than: str) -> int:
        """How many elements an axis has more than another one that is known to differ by a number."""
        base, more = self.lengths.get(axis, (axis, 0))
        other, less = self.lengths.get(than, (than, 0))
        assert base == other, f"{axis} and {than} are not related"
        return more - less

    def is_given(self, axis: str) -> bool:
        """Whether an axis's size is a number or an argument, which no tensor's shape is needed for."""
        return self.sizes[axis].isdigit() or self.sizes[axis].isidentifier()

    # Leaves

    def const(self, value: float | int | bool) -> Value:
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
        return self.make("const", dtype=kind, value=value)

    def size(self, axes: Iterable[str]) -> Value:
        """The number of elements over `axes`."""
        return self.make("size", dtype="int", over=tuple(sorted(axes)))

    # Arithmetic, with the identities that every caller wants

    def add(self, a: Value, b: Value) -> Value:
        if is_const(a, 0):
            return b
        if is_const(b, 0):
            return a
        if b.op == "neg":
            return self.sub(a, b.args[0])
        if a.op == "neg":
            return self.sub(b, a.args[0])
        return self._fold("add", a, b) or self.make("add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        if is_const(b, 0):
            return a
        if is_const(a, 0):
            return self.neg(b)
        if a is b:
            return self.const(0.0)
        if b.op == "neg":
            return self.add(a, b.args[0])
        return self._fold("sub", a, b) or self.make("sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        if is_const(a, 0) or is_const(b, 0):
            return self.const(0.0)
        for x, y in ((a, b), (b, a)):
            if is_const(x, 1):
                return y
            if is_const(x, -1):
                return self.neg(y)
            if x.op == "neg":
                return self.neg(self.mul(x.args[0], y))
        return self._fold("mul", a, b) or self.make("mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        if is_const(a, 0) or is_const(b, 1):
            return a
        if a.op == "neg":
            return self.neg(self.div(a.args[0], b))
        return self._fold("div", a, b) or self.make("div", a, b)

    def neg(self, a: Value) -> Value:
        if a.op == "neg":
            return a.args[0]
        if a.op == "sub":
            return self.sub(a.args[1], a.args[0])
        if a.op == "const":
            return self.const(-a.attr("value"))
        return self.make("neg", a)

    def power(self, a: Value, exponent: int) -> Value:
        """`a` to a small whole power, as products."""
        if exponent < 0:
            return self.div(self.const(1.0), self.power(a, -exponent))
        if exponent == 0:
            return self.const(1.0)
        result = a
        for _ in range(exponent - 1):
            result = self.mul(result, a)
        return result

    def sum(self, a: Value, over: Iterable[str]) -> Value:
        """The sum over named axes; an axis that `a` does not vary over counts its size."""
        axes = frozenset(over)
        if is_const(a, 0):
            return a
        missing = axes - a.axes
        if missing:
            return self.mul(self.sum(a, axes & a.axes), self.size(missing))
        if not axes:
            return a
        if a.op == "sum":
            return self.sum(a.args[0], axes | set(a.attr("over")))
        return self.make("sum", a, over=tuple(sorted(axes)))

    def input(self, name: str, axes: Iterable[str], dtype: str, slices: Slices = ()) -> Value:
        """A tensor argument, or a slice of one."""
        return self.make("input", axes=frozenset(axes), dtype=dtype, name=name, slices=slices)

    def rebuild(self, value: Value, args: Iterable[Value]) -> Value:
        """`value` with other arguments, identities applied."""
        args = tuple(args)
        match value.op:
            case "add" | "sub" | "mul" | "div" | "neg" | "where":
                return getattr(self, value.op)(*args)  # type: ignore[no-any-return]
            case "sum":
                return self.sum(args[0], value.attr("over"))
            case "max" | "min" | "argmax" | "kth_largest" | "simplex_threshold" | "logsumexp" | "cat":
                return self.make(value.op, *args, dtype=value.dtype, **dict(value.attrs))
        axes: Axes = frozenset().union(*(arg.axes for arg in args)) if args else value.axes
        return self.make(value.op, *args, axes=axes, dtype=value.dtype, **dict(value.attrs))

    def dims_of(self, name: str) -> Dims:
        """The dimensions of an input, or of an output or its gradient, by name."""
        tensors: list[Input | Output] = [*self.inputs, *self.outputs]
        for tensor in tensors:
            if name in (tensor.name, f"d{tensor.name}"):
                return tensor.dims
        raise AssertionError(f"no tensor {name}")

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.op == "const":
            return a if condition.attr("value") else b
        return a if a is b else self.make("where", condition, a, b, dtype=_promote((a, b)))

    def _fold(self, op: str, a: Value, b: Value) -> Value | None:
        if a.op != "const" or b.op != "const":
            return None
        x, y = a.attr("value"), b.attr("value")
        if op == "div" and y == 0:
            return None
        return self.const({"add": x + y, "sub": x - y, "mul": x * y, "div": x / y if y else math.nan}[op])

    # Reading

    @property
    def zero_gradients(self) -> list[str]:
        """The inputs whose gradient is zero everywhere."""
        names = dict.fromkeys(name for name, _ in self.gradients if name in self.reached)
        moving = {name for (name, _), value in self.gradients.items() if value.op != "const"}
        return [name for name in names if name not in moving]

    @property
    def gradient_owners(self) -> dict[str, str]:
        """For each input with a gradient other than zero, the first one that has the same gradient at the same places:
        one tensor serves them all. Tables share none, since each has rows of its own that are added to."""
        parts: dict[str, list[tuple[Slices, Value]]] = {}
        for (name, cut), value in self.gradients.items():
            if value.op != "const":
                parts.setdefault(name, []).append((cut, value))
        first: dict[tuple[Dims, tuple[tuple[Slices, Value], ...]], str] = {}
        owners = {}
        for name, own in parts.items():
            is_table = any(piece.at for cut, _ in own for _, piece in cut)
            owners[name] = name if is_table else first.setdefault((self.dims_of(name), tuple(own)), name)
        return owners

    def walk(self, roots: Iterable[Value], stop: Iterable[Value] = ()) -> list[Value]:
        """All values that `roots` need, arguments first; not below the values in `stop`."""
        seen: dict[Value, None] = {}
        stops = set(stop)

        def visit(value: Value) -> Iterator[Value]:
            if value in seen:
                return
            if value not in stops:
                for arg in value.args:
                    yield from visit(arg)
            if value not in seen:
                seen[value] = None
                yield value

        for root in roots:
            list(visit(root))
        return list(seen)

    def check(self) -> None:
        """Asserts the invariants that every pass must keep."""
        for value in self._values.values():
            row = OPS[value.op]
            assert row.arity is None or row.arity == len(value.args), f"{value}: wrong arity"
            assert all(arg.index < value.index for arg in value.args), f"{value}: argument made later"
            if row.reduces:
                assert set(value.attr("over")) <= value.args[0].axes, f"{value}: reduces an axis that is not there"
        names = list(self.names.values())
        assert len(names) == len(set(names)), f"two values share a name: {sorted(names)}"

    def line_of(self, value: Value) -> str:
        """The source line that a value comes from, for a refusal: its own, else one of what it is made of, or used for."""
        nearest = [value]
        for one in nearest:
            if self.lines.get(one):
                return self.lines[one]
            nearest += [arg for arg in one.args if arg not in nearest]
        users = (self.lines.get(user, "") for user in self._values.values() if value in user.args)
        return next((line for line in users if line), self.names.get(value, ""))

    def text(self) -> str:
        """One line a value: the graph as tests read it."""
        lines = []
        for value in self.walk([*(o.value for o in self.outputs), *self.gradients.values()]):
            args = [f"%{arg.index}" for arg in value.args] + [f"{k}={v}" for k, v in value.attrs]
            name = f"  # {self.names[value]}" if value in self.names else ""
            lines.append(f"%{value.index} = {value.op}({', '.join(args)}) over {sorted(value.axes)}{name}")
        return "\n".join(lines)


def is_const(value: Value, number: float) -> bool:
    return value.op == "const" and value.dtype != "bool" and value.attr("value") == number


def _promote(args: Iterable[Value]) -> str:
    kinds = {arg.dtype for arg in args}
    return "float" if "float" in kinds else "int" if "int" in kinds else "bool"
