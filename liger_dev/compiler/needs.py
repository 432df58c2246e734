"""A kernel's specification in, what it computes out: its values and their names, which of them get a line of their own,
and what padded lanes hold."""

import math

from liger_dev.compiler.elements import single_elements
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import WHOLE_ROW
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.padding import Lane
from liger_dev.compiler.padding import Lanes
from liger_dev.compiler.reserved import KERNELS
from liger_dev.compiler.schedule import KernelSpec

# The largest expression, in operations, that stands inside another one without a name of its own.
_INLINE = 5
FILL = {
    "max": -math.inf,
    "argmax": -math.inf,
    "kth_largest": -math.inf,
    "simplex_threshold": -math.inf,
    "min": math.inf,
    "sum": 0.0,
    "cumsum": 0.0,
    "cumprod": 1.0,
}


class Needs:
    """What one kernel computes. `uses` counts who reads a value, `named` are those on a line of their own, whose names are
    none of those `taken`; `fills` are what
    masked loads put into padded columns, `lanes` and `row_lanes` tell what values hold there and in padded rows."""

    def __init__(self, graph: Graph, spec: KernelSpec) -> None:
        self.graph = graph
        self.spec = spec
        self.layout = spec.layout
        roots = [*(s.value for s in spec.stores), *(a.operand for a in spec.accumulators)]
        roots += [v for c in spec.corrections for v in (c.value, c.position)]
        roots += self._indices(roots)
        self.singles = single_elements(graph, spec, roots)
        positions = (position for _, position in self.singles.values())
        self.values = sorted(graph.walk([*roots, *positions], [*spec.loads, *self.singles]), key=lambda v: v.index)
        self.uses = self._count_uses(roots)
        self.taken = KERNELS | {v.attr("name") for v in self.values if v.op == "param"}
        self.names = self._local_names()
        self.fills, self.lanes = self._choose_fills()
        row_fills = {v: self.fills.get(v, 0.0) for v in spec.loads if self.kind(v) in ("tile", "row")}
        self.row_lanes = Lanes(frozenset(spec.layout.members), row_fills)
        self.named = self._choose_named()

    def kind(self, value: Value) -> str:
        return self.layout.kind(value)

    def _indices(self, roots: list[Value]) -> list[Value]:
        """The loads that say where others are."""
        loaded = [v for v in self.graph.walk(roots, self.spec.loads) if v in self.spec.loads]
        names = {piece.at for v in loaded for _, piece in self.spec.loads[v].slices if piece.at}
        names |= {self.spec.scatter.attr("name")} if self.spec.scatter is not None else set()
        return [v for v, place in self.spec.loads.items() if place.name in names and not place.slices]

    def read_once(self, value: Value) -> bool:
        """Whether each element of a loaded tensor belongs to one row alone."""
        return set(self.spec.loads[value].axes) >= {*self.layout.rows, *self.layout.cols}

    def _count_uses(self, roots: list[Value]) -> dict[Value, int]:
        uses = dict.fromkeys(self.values, 0)
        for value in self.values:
            if value in self.singles:
                uses[self.singles[value][1]] += 1
            elif value not in self.spec.loads:
                for arg in value.args:
                    uses[arg] += 1
        for root in roots:
            uses[root] += 1
        return uses

    def _local_names(self) -> dict[Value, str]:
        """The graph's names, but that a value used both exactly and rounded keeps its name for the exact one."""
        names = {v: n for v, n in self.graph.names.items() if v in self.uses}
        for value, name in self.graph.names.items():
            exact = value.args[0] if value.op == "round" and value not in self.spec.loads else None
            if exact is not None and exact not in names and self.uses.get(exact, 0) > (1 if value in names else 0):
                names.pop(value, None)
                names[exact] = name
        for value, place in self.spec.loads.items():
            if value in self.uses:
                names[value] = self.graph.names.get(value, place.name)
        reserved = self.taken | {s for s in self.graph.sizes}
        return {v: f"{n}_value" if n in reserved else n for v, n in names.items()}

    def _choose_fills(self) -> tuple[dict[Value, Lane], Lanes]:
        """Loads fill padded columns with 0; those below a row maximum with -inf if that spares every mask."""
        cols = frozenset(self.layout.cols) if not self.layout.flat else frozenset()
        tiles = [
            v for v in self.spec.loads if v in self.uses and self.kind(v) in ("tile", "col") and v.dtype == "float"
        ]
        fills: dict[Value, Lane] = dict.fromkeys(tiles, 0.0)
        peaks = [v for v in self.values if v.op in ("max", "min", "argmax") and v not in self.spec.loads]
        # A read that leaves its tensor has zeros there, not in padded lanes alone.
        within = [v for v in tiles if not any(piece.outside for _, piece in self.spec.loads[v].slices)]
        for tile in within if peaks else []:
            trial = {**fills, tile: FILL[peaks[0].op]}
            if self._clean(Lanes(cols, trial)):
                return trial, Lanes(cols, trial)
        lanes = Lanes(cols, fills)
        for total in (v for v in self._reductions() if v.op == "sum"):
            if lanes.of(total.args[0]) != 0.0:
                self._mask_culprit(lanes, total.args[0])
        return fills, lanes

    def _clean(self, lanes: Lanes) -> bool:
        return all(lanes.of(v.args[0]) == FILL[v.op] for v in self._reductions())

    def _reductions(self) -> list[Value]:
        return [v for v in self.values if v.op in REDUCTIONS and v not in self.spec.loads and v not in self.singles]

    def _mask_culprit(self, lanes: Lanes, operand: Value) -> None:
        """Masks a difference inside a product (`x - mean`) where it is defined, so that padding is 0 from there on."""
        factors = [operand]
        while any(f.op == "mul" for f in factors):
            factors = [arg for f in factors for arg in (f.args if f.op == "mul" else (f,))]
        for factor in factors:
            if factor.op in ("add", "sub") and self.kind(factor) == "tile" and lanes.of(factor) != 0.0:
                lanes.mask(factor)
                if lanes.of(operand) == 0.0:
                    return
                lanes.unmask(factor)

    def _choose_named(self) -> set[Value]:
        """The values that get a name; the others stand inside larger expressions."""
        sizes: dict[Value, int] = {}
        named: set[Value] = set()
        duplicated = {arg for v in self.values for arg in v.args if OPS[v.op].triton.count("{0}") > 1}
        scanned = {v.args[0] for v in self.values if self.spec.looped and v.op in SCANS and v not in self.spec.loads}
        searched = {v.args[0] for v in self.values if v.op in WHOLE_ROW and v not in self.spec.loads}
        hoisted = {arg for v in self.values for arg in v.args if self.kind(v) == "tile" and self.kind(arg) == "row"}
        several = sum(self.kind(v) == "tile" and self.read_once(v) for v in self.spec.loads if v in self.uses) > 1
        for value in self.values:
            if value in self.spec.loads or not value.args:
                sizes[value] = 0
                continue
            if value in self.singles:
                named |= {value, self.singles[value][1]} - set(self.spec.loads)
                sizes[value] = 1
                continue
            size = 1 + sum(0 if arg in named else sizes[arg] for arg in value.args)
            if (
                value in self.names
                or self.uses[value] > 1
                or value in duplicated
                or value.op == "logaddexp"
                or value in self.lanes.masked
                or (value in hoisted and size > 1)
                or size > _INLINE
                or (self.spec.looped and value.op in (*REDUCTIONS, *SCANS))
                or value in scanned
                or ((self.spec.persistent or several) and value.op in REDUCTIONS and value in hoisted)
                or value.op in WHOLE_ROW
                or value in searched
            ):
                named.add(value)
            sizes[value] = size
        return named
