"""Forward values that are sums over rows in, torch statements out: `loss = row_loss.sum() / n_rows`."""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.naming import suggest
from liger_dev.compiler.naming import unique
from liger_dev.compiler.ops import ATOM
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.ops import PRODUCT
from liger_dev.compiler.ops import SUM
from liger_dev.compiler.shapes import Shapes
from liger_dev.compiler.shapes import is_atom
from liger_dev.compiler.shapes import is_sum
from liger_dev.compiler.spelling import literal
from liger_dev.compiler.spelling import strength_needed

_METHODS = {"clamp_min": "clamp_min", "clamp_max": "clamp_max"}


@dataclass
class HostValues:
    """Spells the values in `host`; `rows` are the names of the row tensors that kernels have filled,
    `wanted` the values that other statements use, by name."""

    graph: Graph
    shapes: Shapes
    host: frozenset[Value]
    rows: dict[Value, str]
    wanted: dict[Value, str]
    bound: dict[Value, str] = field(default_factory=dict)

    def assign(self, values: Iterable[Value]) -> list[str]:
        """Statements for those of the wanted values that have none yet, what they share first."""
        uses: dict[Value, int] = {}
        for value in self.graph.walk(self.wanted):
            for arg in value.args if value in self.host else ():
                uses[arg] = uses.get(arg, 0) + 1
        lines = []
        for value in self.graph.walk(values, self.bound):
            needed = value in self.host and value not in self.bound
            if needed and (value in self.wanted or uses.get(value, 0) > 1):
                taken = {*self.bound.values(), *self.wanted.values()}
                name = self.wanted.get(value) or unique(
                    self.graph.names.get(value) or suggest(value, self.bound), taken
                )
                lines.append(f"{name} = {self.spell(value)[0]}")
                self.bound[value] = name
        return lines

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
                return text, SUM if is_sum(text) else ATOM if is_atom(text) else PRODUCT
            case "sum":
                return self.total(value), ATOM
            case "round" | "detach":
                return self.spell(value.args[0])
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
        parts = []
        for i, arg in enumerate(value.args):
            text, strength = self.spell(arg)
            parts.append(f"({text})" if strength < strength_needed(value, i) else text)
        return row.triton.format(*parts), row.strength

    def total(self, value: Value) -> str:
        operand = value.args[0]
        if operand in self.rows:
            return f"{self.rows[operand]}.sum()"
        counted = operand.op == "float"  # what is counted needs no copy in float32
        text, strength = self.spell(operand.args[0] if counted else operand)  # of the tensors themselves
        return f"{text if strength == ATOM else f'({text})'}.sum({'dtype=torch.float32' if counted else ''})"
