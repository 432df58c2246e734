"""A KernelSpec in, the text of a Triton kernel out: statements first, then lines."""

import math

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
from liger_dev.compiler.padding import Lane
from liger_dev.compiler.padding import Lanes
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Store

# The largest expression, in operations, that stands inside another one without a name of its own.
_INLINE = 5
_RESERVED = {"rows", "cols", "mask", "row_mask", "col_mask", "offsets", "block", "n_rows", "n_cols", "n_elements", "tl"}


@dataclass(frozen=True)
class KernelText:
    """A kernel as text. `pointers` are its tensor arguments in order, `scalars` the reference's, `flags` constexprs."""

    name: str
    pointers: tuple[str, ...]
    scalars: tuple[str, ...]
    flags: tuple[str, ...]
    lines: tuple[str, ...]


def emit_kernel(graph: Graph, spec: KernelSpec) -> KernelText:
    return _Kernel(graph, spec).text()


@dataclass
class _Kernel:
    """One kernel as it grows: what stands before a loop over rows (`head`), then loads, computation, and stores."""

    graph: Graph
    spec: KernelSpec
    head: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    bound: dict[Value, str] = field(default_factory=dict)
    scalars: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        spec = self.spec
        roots = [*(s.value for s in spec.stores), *(a.value.args[0] for a in spec.accumulators)]
        self.values = sorted(self.graph.walk(roots, spec.loads), key=lambda v: v.index)
        self.uses = self._count_uses()
        self.names = self._local_names()
        self.fills, self.lanes = self._choose_fills()
        row_fills = {v: self.fills.get(v, 0.0) for v in spec.loads if self.kind(v) in ("tile", "row")}
        self.row_lanes = Lanes(frozenset(spec.layout.rows), row_fills)
        self.sizes = self._inline_sizes()

    # What is needed, and what it is called

    def kind(self, value: Value) -> str:
        return self.spec.layout.kind(value)

    def _count_uses(self) -> dict[Value, int]:
        uses = dict.fromkeys(self.values, 0)
        for value in self.values:
            if value not in self.spec.loads:
                for arg in value.args:
                    uses[arg] += 1
        for root in (*(s.value for s in self.spec.stores), *(a.value.args[0] for a in self.spec.accumulators)):
            uses[root] += 1
        return uses

    def _local_names(self) -> dict[Value, str]:
        """The graph's names, but that a value used both exactly and rounded keeps its name for the exact one."""
        names = {v: n for v, n in self.graph.names.items() if v in self.uses}
        for value in list(names):
            exact = value.args[0] if value.op == "round" and value not in self.spec.loads else None
            if exact is not None and exact not in names and self.uses.get(exact, 0) > 1:
                names[exact] = names.pop(value)
        names.update(self.spec.loads)
        return {v: f"{n}_value" if n in _RESERVED else n for v, n in names.items()}

    def _choose_fills(self) -> tuple[dict[Value, Lane], Lanes]:
        """Loads fill padded columns with 0; those below a row maximum with -inf if that spares every mask."""
        cols = frozenset(self.spec.layout.cols)
        tiles = [v for v in self.spec.loads if self.kind(v) in ("tile", "col")]
        fills: dict[Value, Lane] = dict.fromkeys(tiles, 0.0)
        peaks = [v for v in self.values if v.op == "max"]
        for tile in tiles if peaks else []:
            trial = {**fills, tile: -math.inf}
            if self._clean(Lanes(cols, trial)):
                return trial, Lanes(cols, trial)
        lanes = Lanes(cols, fills)
        for total in (v for v in self.values if v.op == "sum" and v not in self.spec.loads):
            if lanes.of(total.args[0]) != 0.0:
                self._mask_culprit(lanes, total.args[0])
        return fills, lanes

    def _clean(self, lanes: Lanes) -> bool:
        reductions = [v for v in self.values if v.op in ("sum", "max") and v not in self.spec.loads]
        return all(lanes.of(v.args[0]) == (0.0 if v.op == "sum" else -math.inf) for v in reductions)

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
                lanes.masked.discard(factor)
                lanes._known.clear()

    def _inline_sizes(self) -> dict[Value, int]:
        """Operations that stand unnamed in each value's expression; settles which values get a name."""
        sizes: dict[Value, int] = {}
        self.named: set[Value] = set()
        duplicated = {arg for v in self.values for arg in v.args if OPS[v.op].triton.count("{0}") > 1}
        hoisted = {arg for v in self.values for arg in v.args if self.kind(v) == "tile" and self.kind(arg) == "row"}
        for value in self.values:
            if value in self.spec.loads:
                sizes[value] = 0
                continue
            size = 1 + sum(0 if arg in self.named else sizes[arg] for arg in value.args) if value.args else 0
            wants = (
                value in self.names
                or self.uses[value] > 1
                or value in duplicated
                or value in self.lanes.masked
                or (value in hoisted and size > 1)
                or size > _INLINE
            )
            if value.args and wants:
                self.named.add(value)
            sizes[value] = size
        return sizes

    # Expressions

    def spell(self, value: Value) -> tuple[str, int]:
        """The text of a value and how tightly its outermost operator binds."""
        if value in self.bound:
            return self.bound[value], ATOM
        match value.op:
            case "const":
                return _literal(value)
            case "param":
                name = value.attr("name")
                self.scalars.add(name)
                return name, ATOM
            case "size":
                return self._size(value), ATOM
            case "sum" | "max":
                return self._reduction(value), ATOM
            case "round":
                return f"{self._operand(value.args[0], ATOM)}.to({self._like(value)}).to(tl.float32)", ATOM
        row = OPS[value.op]
        parts = [self._operand(arg, self._needs(value, i)) for i, arg in enumerate(value.args)]
        return row.triton.format(*parts), row.strength

    def _needs(self, value: Value, position: int) -> int:
        """The strength below which an operand gets parentheses: a right operand of equal strength gets them, since
        the grouping says what is done once a row and what once an element."""
        row = OPS[value.op]
        if row.strength == ATOM:
            return 0 if "(" in row.triton else ATOM
        return row.strength + (1 if position or row.strength not in (SUM, PRODUCT) else 0)

    def _operand(self, value: Value, needs: int) -> str:
        text, strength = self.spell(value)
        return f"({text})" if strength < needs else text

    def _size(self, value: Value) -> str:
        over = set(value.attr("over"))
        layout = self.spec.layout
        if layout.flat:
            return "n_elements"
        parts = []
        if over & set(layout.rows):
            assert over >= set(layout.rows), "a size of some row axes only"
            parts.append("n_rows")
        if over & set(layout.cols):
            parts.append("n_cols")
        return " * ".join(parts) if len(parts) == 1 else f"({' * '.join(parts)})"

    def _reduction(self, value: Value) -> str:
        operand = value.args[0]
        text, _ = self.spell(operand)
        lane = self.lanes.of(operand)
        if value.op == "sum":
            inner = text if lane == 0.0 else f"tl.where(mask, {text}, 0.0)"
            return f"tl.sum({inner}, axis=1, keep_dims=True)"
        inner = text if lane == -math.inf else f'tl.where(mask, {text}, float("-inf"))'
        return f"tl.max({inner}, axis=1, keep_dims=True)"

    def _like(self, value: Value) -> str:
        """A pointer of this kernel that has the dtype that a rounding is to."""
        like = value.attr("like")
        names = set(self.spec.loads.values())
        for output in self.graph.outputs:
            if tuple(sorted(output.dtype_of)) == like:
                for pointer in (output.name, f"d{output.name}"):
                    if pointer in names or pointer in {s.name for s in self.spec.stores}:
                        return f"{pointer}_ptr.dtype.element_ty"
        found = [name for name in like if name in names]
        assert found, f"no pointer of this kernel has the dtype of {like}"
        return f"{found[0]}_ptr.dtype.element_ty"

    # Statements

    def bind(self, value: Value) -> None:
        """Emits the named values that `value` needs, arguments first, then the value itself if it is named."""
        if value in self.bound:
            return
        for arg in value.args:
            self.bind(arg)
        if value in self.named:
            text, _ = self.spell(value)
            if value in self.lanes.masked:
                text = f"tl.where(mask, {text}, 0.0)"
            self._assign(value, text)

    def _assign(self, value: Value, text: str) -> None:
        taken = {*self.bound.values(), *_RESERVED, *(n for v, n in self.names.items() if v is not value)}
        name = self.names.get(value) or unique(suggest(value, self.bound), taken)
        self.bound[value] = name
        outside = self.spec.persistent and self.kind(value) in ("col", "scalar")
        block = self.head if outside else self.loads if value in self.spec.loads else self.body
        block.append(f"{name} = {text}")

    def _load(self, value: Value) -> str:
        name = self.spec.loads[value]
        kind = self.kind(value)
        if kind == "scalar":
            text = f"tl.load({name}_ptr)"
        else:
            fill = "0.0" if self.fills.get(value, 0.0) == 0.0 else 'float("-inf")'
            text = f"tl.load({name}_ptr + {self._index(kind)}, mask={self._mask(kind)}, other={fill})"
        if value.op == "input" or kind != "row":
            text = f"{text}.to(tl.float32)"
        if value in self.spec.optional:
            text = f"{text} if HAS_{name.upper()} else {self.spec.optional[value]}"
        return text

    def _index(self, kind: str) -> str:
        return {"tile": "offsets", "row": "rows", "col": "cols"}[kind]

    def _mask(self, kind: str) -> str:
        return {"tile": "mask", "row": "row_mask", "col": "col_mask"}[kind]

    def _store(self, store: Store) -> None:
        self.bind(store.value)
        kind = "tile" if self.spec.layout.flat else self._stored_kind(store)
        text = self.spell(store.value)[0]
        target = f"{store.name}_ptr" if kind == "scalar" else f"{store.name}_ptr + {self._index(kind)}"
        line = f"tl.store({target}, {text}, mask={self._mask(kind)})"
        self.tail += [f"if {store.guard}:", f"    {line}"] if store.guard else [line]

    def _stored_kind(self, store: Store) -> str:
        """A gradient that does not vary over the columns is still stored to all of them."""
        outputs = {o.name: o for o in self.graph.outputs}
        dims = outputs[store.name].dims if store.name in outputs else None
        if dims is None and store.name.startswith("d"):
            dims = next((i.dims for i in self.graph.inputs if f"d{i.name}" == store.name), None)
        if dims is None:
            return self.kind(store.value)
        axes = {d for d in dims if d}
        has_rows, has_cols = bool(axes & set(self.spec.layout.rows)), bool(axes & set(self.spec.layout.cols))
        return "tile" if has_rows and has_cols else "row" if has_rows else "col"

    def _accumulate(self) -> None:
        for acc in self.spec.accumulators:
            operand = acc.value.args[0]
            self.bind(operand)
            text = self.spell(operand)[0]
            if self.row_lanes.of(operand) != 0.0:
                text = f"tl.where(mask, {text}, 0.0)"
            whole = not acc.value.axes
            reduced = f"tl.sum({text})" if whole else f"tl.sum({text}, axis=0, keep_dims=True)"
            line = f"{acc.name} += {reduced}"
            self.tail += [f"if {acc.guard}:", f"    {line}"] if acc.guard else [line]

    # The whole text

    def text(self) -> KernelText:
        for value in self.spec.loads:
            if value in self.uses:
                self._assign(value, self._load(value))
        for store in sorted(self.spec.stores, key=lambda s: s.value.index):
            self._bind_before(store.value)
            self._store(store)
        self._accumulate()
        lines = self._flat() if self.spec.layout.flat else self._persistent() if self.spec.persistent else self._rows()
        pointers = [*self._ordered_loads(), *(s.name for s in self.spec.stores)]
        pointers += [f"{a.name}_partial" for a in self.spec.accumulators]
        flags = [f"HAS_{self.spec.loads[v].upper()}" for v in self.spec.optional if v in self.spec.loads]
        flags += [store.guard for store in self.spec.stores if store.guard]
        flags += [acc.guard for acc in self.spec.accumulators if acc.guard]
        return KernelText(self.spec.name, tuple(pointers), tuple(sorted(self.scalars)), tuple(flags), tuple(lines))

    def _ordered_loads(self) -> list[str]:
        return list(dict.fromkeys(name for value, name in self.spec.loads.items() if value in self.uses))

    def _bind_before(self, last: Value) -> None:
        """Statements in the order in which values were made, which is the reference's own order."""
        needed = set(self.graph.walk([last], self.spec.loads))
        for value in self.values:
            if value in needed and value in self.named:
                self.bind(value)

    def _parts(self) -> list[str]:
        return [line for part in (self.loads, self.body, self.tail) if part for line in ("", *part)]

    def _flat(self) -> list[str]:
        return [
            "offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)",
            "mask = offsets < n_elements",
            *self._parts(),
        ]

    def _rows(self) -> list[str]:
        return [
            "rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
            "cols = tl.arange(0, BLOCK_COLS)[None, :]",
            *self._masks(inside=True, outside=True),
            "offsets = rows * n_cols + cols",
            *self._parts(),
        ]

    def _masks(self, inside: bool, outside: bool) -> list[str]:
        text = "\n".join([*self.head, *self.loads, *self.body, *self.tail])
        lines = []
        split = "row_mask" in text or "col_mask" in text or self.spec.persistent
        if not split:
            return ["mask = (rows < n_rows) & (cols < n_cols)"]
        if inside:
            lines.append("row_mask = rows < n_rows")
        if outside:
            lines.append("col_mask = cols < n_cols")
        if inside:
            lines.append("mask = row_mask & col_mask")
        return lines

    def _persistent(self) -> list[str]:
        whole = {a.name for a in self.spec.accumulators if not a.value.axes}
        zeros = [
            f"{a.name} = " + ("0.0" if a.name in whole else "tl.zeros((1, BLOCK_COLS), dtype=tl.float32)")
            for a in self.spec.accumulators
        ]
        loop = [
            "rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
            *self._masks(inside=True, outside=False),
            "offsets = rows * n_cols + cols",
            *self._parts(),
        ]
        return [
            "cols = tl.arange(0, BLOCK_COLS)[None, :]",
            *self._masks(inside=False, outside=True),
            *self.head,
            *zeros,
            "",
            "for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):",
            *(f"    {line}" if line else "" for line in loop),
            "",
            *self._partials(whole),
        ]

    def _partials(self, whole: set[str]) -> list[str]:
        lines = []
        for acc in self.spec.accumulators:
            pointer = f"{acc.name}_partial_ptr + tl.program_id(0)"
            line = (
                f"tl.store({pointer}, {acc.name})"
                if acc.name in whole
                else f"tl.store({pointer} * n_cols + cols, {acc.name}, mask=col_mask)"
            )
            lines += [f"if {acc.guard}:", f"    {line}"] if acc.guard else [line]
        return lines


def _literal(value: Value) -> tuple[str, int]:
    number = value.attr("value")
    if value.dtype != "float":
        return str(number), ATOM
    if math.isinf(number):
        return f'float("{number}")', ATOM
    short = float(f"{number:.15g}")
    return repr(short), ATOM if short >= 0 else SUM
