"""A looped kernel's values in, its passes over the columns out: what each reduces, stores and needs beforehand."""

from collections.abc import Mapping
from dataclasses import dataclass

from liger_dev.compiler.expand import row_maximum
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Store


@dataclass(frozen=True)
class Pass:
    """One walk over a row's columns. `online` pairs a maximum with the sum of exponentials that is shifted by it, or
    a sum with that of squared differences from its mean; `loads` are the tiles and columns it reads, `needs` all values it goes through."""

    reductions: tuple[Value, ...]
    online: tuple[tuple[Value, Value], ...]
    stores: tuple[Store, ...]
    loads: frozenset[Value]
    needs: frozenset[Value]


def arrange(
    graph: Graph, spec: KernelSpec, values: list[Value], singles: Mapping[Value, tuple[Value, Value]]
) -> tuple[list[Pass], list[Store]]:
    """The passes, and the stores of row values that follow the last of them. `singles` are elements of a row, found by
    their position: no pass is needed for them."""
    layout, loads = spec.layout, spec.loads
    reductions = [v for v in values if v.op in REDUCTIONS and v not in loads and v not in singles]
    pairs = _moments(reductions) if spec.wide else _online_pairs(reductions)
    levels = _levels(values, loads, dict(pairs), singles)
    tiles = [s for s in spec.stores if layout.kind(s.value) in ("tile", "col") or _fills_columns(spec, s)]
    passes = []
    paired = {v for pair in pairs for v in pair}
    for level in sorted({*(levels[v.args[0]] for v in reductions), *(levels[s.value] for s in tiles)}):
        own = tuple(v for v in reductions if levels[v.args[0]] == level and v not in paired)
        online = tuple(pair for pair in pairs if levels[pair[0].args[0]] == level)
        stores = tuple(s for s in tiles if levels[s.value] == level)
        roots = [*(v.args[0] for v in own), *(p.args[0] for p, _ in online), *(s.value for s in stores)]
        if not roots:
            continue
        done = [v for v in reductions if levels[v] <= level]
        needs = frozenset(graph.walk(roots, [*loads, *singles, *done]))
        needs |= frozenset(graph.walk([singles[v][1] for v in needs if v in singles], [*loads, *done]))
        read = frozenset(v for v in needs if v in loads and layout.kind(v) in ("tile", "col"))
        passes.append(Pass(own, online, stores, read, needs))
    return passes, [s for s in spec.stores if s not in tiles]


def _fills_columns(spec: KernelSpec, store: Store) -> bool:
    return bool(set(store.place.axes) & set(spec.layout.cols))


def _online_pairs(reductions: list[Value]) -> list[tuple[Value, Value]]:
    """Maxima and the sums of exp(x - maximum) over the same x."""
    pairs = []
    for total in reductions:
        inner = total.args[0]
        if total.op == "sum" and inner.op == "exp" and inner.args[0].op == "sub":
            x, peak = inner.args[0].args[0], row_maximum(inner.args[0].args[1])
            if peak is not None and peak.args[0] is x and peak in reductions:
                pairs.append((peak, total))
    return pairs


def _moments(reductions: list[Value]) -> list[tuple[Value, Value]]:
    """Sums, and those of the squares of what the same x is apart from its mean."""
    pairs = []
    for squares in (v for v in reductions if v.op == "sum"):
        inner = squares.args[0]
        centered = inner.args[0] if inner.op == "mul" and inner.args[0] is inner.args[1] else inner
        if centered.op == "sub" and centered.args[1].op == "div":
            x, (total, size) = centered.args[0], centered.args[1].args
            if total in reductions and total.op == "sum" and total.args[0] is x and size.op == "size":
                pairs.append((total, squares))
    return pairs


def _levels(
    values: list[Value],
    loads: Mapping[Value, object],
    sums: Mapping[Value, Value],
    singles: Mapping[Value, tuple[Value, Value]],
) -> dict[Value, int]:
    """How many passes must be over before a value can be computed; an online sum is ready with its maximum."""
    peak_of = {total: peak for peak, total in sums.items()}
    levels: dict[Value, int] = {}
    for value in values:
        if value in loads or not value.args:
            levels[value] = 0
        elif value in singles:
            levels[value] = levels[singles[value][1]]
        elif value in peak_of:
            levels[value] = levels[peak_of[value].args[0]] + 1
        else:
            levels[value] = max(levels[arg] for arg in value.args) + (1 if value.op in REDUCTIONS else 0)
    return levels
