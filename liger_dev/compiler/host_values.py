"""Forward values that are sums over rows in, torch statements out: `loss = row_loss.sum() / n_rows`."""

from dataclasses import dataclass
from dataclasses import field

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.naming import suggest
from liger_dev.compiler.naming import unique
from liger_dev.compiler.ops import ATOM
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.ops import PRODUCT
from liger_dev.compiler.shapes import Shapes
from liger_dev.compiler.spelling import literal
from liger_dev.compiler.spelling import strength_needed
from liger_dev.errors import Unsupported

_METHODS = {"clamp_min": "clamp_min", "clamp_max": "clamp_max", "pow": "pow"}


@dataclass
class HostValues:
    """Spells host values; `rows` are the names and dimensions of the row tensors that kernels have filled."""

    graph: Graph
    shapes: Shapes
    rows: dict[Value, tuple[str, tuple[str, ...]]]
    wanted: dict[Value, str]
    lines: list[str] = field(default_factory=list)
    bound: dict[Value, str] = field(default_factory=dict)

    def assign(self, host: frozenset[Value]) -> list[str]:
        """Statements for all wanted values, what they share first."""
        uses: dict[Value, int] = {}
        order = [v for v in self.graph.walk(self.wanted) if v in host]
        for value in order:
            for arg in value.args:
                uses[arg] = uses.get(arg, 0) + 1
        for value in order:
            if value in self.wanted or uses.get(value, 0) > 1:
                taken = {*self.bound.values(), *self.wanted.values()}
                name = self.wanted.get(value) or unique(
                    self.graph.names.get(value) or suggest(value, self.bound), taken
                )
                self.lines.append(f"{name} = {self.spell(value)[0]}")
                self.bound[value] = name
        return self.lines

    def spell(self, value: Value) -> tuple[str, int]:
        if value in self.bound:
            return self.bound[value], ATOM
        match value.op:
            case "const":
                return literal(value)
            case "param":
                return value.attr("name"), ATOM
            case "size":
                text = self.shapes.product(value.attr("over"))
                return text, PRODUCT if "*" in text or "//" in text else ATOM
            case "sum":
                return self.total(value), ATOM
            case "round" | "detach":
                return self.spell(value.args[0])
            case "where":
                parts = [self.spell(arg)[0] for arg in value.args]
                return f"torch.where({', '.join(parts)})", ATOM
            case "input" if value.dtype != "float" and not value.attr("slices"):
                return value.attr("name"), ATOM
            case "input" if not value.axes or value.dtype == "float" and not value.attr("slices"):
                return f"{value.attr('name')}.float()", ATOM
            case "input":
                return value.attr("name"), ATOM
            case "float":
                text, strength = self.spell(value.args[0])
                return f"{text if strength == ATOM else f'({text})'}.float()", ATOM
        row = OPS[value.op]
        if value.op in _METHODS:
            base, other = (self.spell(arg) for arg in value.args)
            return f"{base[0] if base[1] == ATOM else f'({base[0]})'}.{_METHODS[value.op]}({other[0]})", ATOM
        if row.strength == ATOM:
            if row.evaluate is None or not hasattr(row.evaluate, "__name__") or value.op in ("maximum", "minimum"):
                raise Unsupported(f"{value.op} of a sum over rows", self.graph.lines.get(value, ""))
            return f"torch.{row.evaluate.__name__}({', '.join(self.spell(arg)[0] for arg in value.args)})", ATOM
        parts = []
        for i, arg in enumerate(value.args):
            text, strength = self.spell(arg)
            parts.append(f"({text})" if strength < strength_needed(value, i) else text)
        return row.triton.format(*parts), row.strength

    def total(self, value: Value) -> str:
        operand, over = value.args[0], set(value.attr("over"))
        if not self.rows and operand.axes <= over:  # of the tensors themselves
            text, strength = self.spell(operand)
            return f"{text if strength == ATOM else f'({text})'}.sum()"
        if operand not in self.rows:
            raise Unsupported("a sum over rows of sums over rows", self.graph.lines.get(value, ""))
        name, axes = self.rows[operand]
        if set(axes) <= over:
            return f"{name}.sum()"
        sizes = ", ".join(self.shapes.axis(axis) for axis in axes)
        dims = ", ".join(str(i) for i, axis in enumerate(axes) if axis in over)
        return f"{name}.view({sizes}).sum(({dims},))"
