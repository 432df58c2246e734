"""A KernelSpec in, the text of a Triton kernel out: statements first, then lines."""

import math

from dataclasses import dataclass
from dataclasses import field

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import address
from liger_dev.compiler.naming import suggest
from liger_dev.compiler.naming import unique
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.padding import Lane
from liger_dev.compiler.padding import Lanes
from liger_dev.compiler.passes import Pass
from liger_dev.compiler.passes import arrange
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Place
from liger_dev.compiler.schedule import Store
from liger_dev.compiler.spelling import Speller

# The largest expression, in operations, that stands inside another one without a name of its own.
_INLINE = 5
_RESERVED = {
    "rows",
    "cols",
    "mask",
    "row_mask",
    "col_mask",
    "offsets",
    "block",
    "start",
    "n_rows",
    "n_cols",
    "n_elements",
    "tl",
}
_FILL = {"max": -math.inf, "min": math.inf, "sum": 0.0}


@dataclass(frozen=True)
class KernelText:
    """A kernel as text. `pointers` are its tensor arguments in order, `sizes` the axes whose sizes it takes beside
    rows and columns, `scalars` the reference's scalar arguments, `flags` its constexprs."""

    name: str
    pointers: tuple[str, ...]
    sizes: tuple[str, ...]
    scalars: tuple[str, ...]
    flags: tuple[str, ...]
    lines: tuple[str, ...]


def emit_kernel(graph: Graph, spec: KernelSpec) -> KernelText:
    return _Kernel(graph, spec).text()


@dataclass
class _Block:
    """Statements of one stretch of a kernel: addresses, loads, computation, stores."""

    addresses: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        parts = [part for part in ([*self.addresses], self.loads, self.body, self.tail) if part]
        return [line for i, part in enumerate(parts) for line in (*([""] if i or not self.addresses else []), *part)]

    def all(self) -> list[str]:
        return [*self.addresses, *self.loads, *self.body, *self.tail]


class _Kernel:
    """One kernel as it grows: what stands outside its loop (`head`), and the block or passes inside."""

    def __init__(self, graph: Graph, spec: KernelSpec) -> None:
        self.graph = graph
        self.spec = spec
        self.layout = spec.layout
        self.head: list[str] = []
        self.block = _Block()
        self.speller = Speller(graph, spec.layout, self.like, self.reduction)
        self.shared: dict[str, str] = {}
        roots = [*(s.value for s in spec.stores), *(a.operand for a in spec.accumulators)]
        self.values = sorted(graph.walk(roots, spec.loads), key=lambda v: v.index)
        self.uses = self._count_uses(roots)
        self.names = self._local_names()
        self.fills, self.lanes = self._choose_fills()
        row_fills = {v: self.fills.get(v, 0.0) for v in spec.loads if self.kind(v) in ("tile", "row")}
        self.row_lanes = Lanes(frozenset(spec.layout.rows), row_fills)
        self.named = self._choose_named()

    # What is needed, and what it is called

    def kind(self, value: Value) -> str:
        return self.layout.kind(value)

    def _count_uses(self, roots: list[Value]) -> dict[Value, int]:
        uses = dict.fromkeys(self.values, 0)
        for value in self.values:
            if value not in self.spec.loads:
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
        reserved = _RESERVED | {s for s in self.graph.sizes}
        return {v: f"{n}_value" if n in reserved else n for v, n in names.items()}

    def _choose_fills(self) -> tuple[dict[Value, Lane], Lanes]:
        """Loads fill padded columns with 0; those below a row maximum with -inf if that spares every mask."""
        cols = frozenset(self.layout.cols) if not self.layout.flat else frozenset()
        tiles = [
            v for v in self.spec.loads if v in self.uses and self.kind(v) in ("tile", "col") and v.dtype == "float"
        ]
        fills: dict[Value, Lane] = dict.fromkeys(tiles, 0.0)
        peaks = [v for v in self.values if v.op in ("max", "min") and v not in self.spec.loads]
        for tile in tiles if peaks else []:
            trial = {**fills, tile: _FILL[peaks[0].op]}
            if self._clean(Lanes(cols, trial)):
                return trial, Lanes(cols, trial)
        lanes = Lanes(cols, fills)
        for total in (v for v in self.values if v.op == "sum" and v not in self.spec.loads):
            if lanes.of(total.args[0]) != 0.0:
                self._mask_culprit(lanes, total.args[0])
        return fills, lanes

    def _clean(self, lanes: Lanes) -> bool:
        reductions = [v for v in self.values if v.op in REDUCTIONS and v not in self.spec.loads]
        return all(lanes.of(v.args[0]) == _FILL[v.op] for v in reductions)

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
        hoisted = {arg for v in self.values for arg in v.args if self.kind(v) == "tile" and self.kind(arg) == "row"}
        for value in self.values:
            if value in self.spec.loads or not value.args:
                sizes[value] = 0
                continue
            size = 1 + sum(0 if arg in named else sizes[arg] for arg in value.args)
            if (
                value in self.names
                or self.uses[value] > 1
                or value in duplicated
                or value in self.lanes.masked
                or (value in hoisted and size > 1)
                or size > _INLINE
                or (self.spec.looped and value.op in REDUCTIONS)
            ):
                named.add(value)
            sizes[value] = size
        return named

    # Expressions

    def reduction(self, value: Value) -> str:
        inner = self.padded(value)
        return f"tl.{value.op}({inner}, axis=1, keep_dims=True)"

    def padded(self, value: Value) -> str:
        """A reduction's operand, masked unless its padded lanes are neutral anyway."""
        operand, fill = value.args[0], _FILL[value.op]
        text = self.speller.text(operand)
        if self.lanes.of(operand) == fill:
            return text if self.kind(operand) == "tile" else f"tl.broadcast_to({text}, (BLOCK_ROWS, BLOCK_COLS))"
        return f"tl.where(mask, {text}, {_fill_text(fill)})"

    def like(self, value: Value) -> str:
        """A pointer of this kernel that has the dtype that a rounding is to."""
        like = value.attr("like")
        names = {place.name for v, place in self.spec.loads.items() if v in self.uses and not place.exact}
        stored = {store.place.name for store in self.spec.stores}
        for output in self.graph.outputs:
            if tuple(sorted(output.dtype_of)) == like:
                for pointer in (output.name, f"d{output.name}"):
                    if pointer in names or pointer in stored:
                        return f"{pointer}_ptr.dtype.element_ty"
        found = [name for name in like if name in names]
        assert found, f"no pointer of this kernel has the dtype of {like}"
        return f"{found[0]}_ptr.dtype.element_ty"

    # Statements

    def bind(self, value: Value) -> None:
        """Emits the loads and named values that `value` needs, arguments first, then the value itself if it is named."""
        if value in self.speller.bound:
            return
        if value in self.spec.loads:
            self._assign(value, self._load(value), self.block.loads)
            return
        for arg in value.args:
            self.bind(arg)
        if value in self.named:
            text = self.speller.text(value)
            if value in self.lanes.masked:
                text = f"tl.where(mask, {text}, 0.0)"
            self._assign(value, text, self.block.body)

    def _assign(self, value: Value, text: str, block: list[str]) -> None:
        name = self.name_of(value)
        self.speller.bound[value] = name
        outside = self.spec.persistent and self.kind(value) in ("col", "scalar")
        (self.head if outside else block).append(f"{name} = {text}")

    def name_of(self, value: Value) -> str:
        if value not in self.names:
            taken = {*self.speller.bound.values(), *_RESERVED, *self.names.values()}
            self.names[value] = unique(suggest(value, self.speller.bound), taken)
        return self.names[value]

    def at(self, place: Place, kind: str, owner: str) -> str:
        """The pointer expression of a place; an address that is not plain rows, columns or offsets gets a name."""
        found = address(self.graph, self.layout, place.dims, place.slices)
        self.speller.sizes.update(found.sizes)
        text = found.text
        if text == "0":
            return f"{place.name}_ptr"
        if text in ("rows", "cols", "offsets") or text.isdigit():
            return f"{place.name}_ptr + {text}"
        if not self.layout.flat and text == "rows * n_cols + cols":
            self.plain = True
            return f"{place.name}_ptr + offsets"
        if text not in self.shared:
            self.shared[text] = unique(f"{owner}_offsets", {*self.shared.values(), *_RESERVED})
            outside = self.spec.persistent and kind in ("col", "scalar")
            (self.head if outside else self.block.addresses).append(f"{self.shared[text]} = {text}")
        return f"{place.name}_ptr + {self.shared[text]}"

    plain = False

    def _load(self, value: Value) -> str:
        place, kind = self.spec.loads[value], self.kind(value)
        pointer = self.at(place, kind, self.name_of(value))
        if kind == "scalar":
            text = f"tl.load({pointer})"
        else:
            fill = _fill_text(self.fills.get(value, 0.0)) if value.dtype == "float" else "0"
            text = f"tl.load({pointer}, mask={_MASKS[kind]}, other={fill})"
        if value.dtype == "float" and not place.exact:
            text = f"{text}.to(tl.float32)"
        if value.dtype == "bool":
            text = f"{text} != 0"
        if value in self.spec.optional:
            text = f"{text} if HAS_{place.name.upper()} else {self.spec.optional[value]}"
        return text

    def _store(self, store: Store) -> None:
        self.bind(store.value)
        kind = self._kind_of(store.place)
        text = self.speller.text(store.value)
        pointer = self.at(store.place, kind, self.names.get(store.value, store.place.name))
        if kind == "scalar" and self.kind(store.value) == "scalar" and self.spec.looped:
            pointer, kind = f"{pointer} + rows", "row"  # the one row that there is
        mask = "" if kind == "scalar" else f", mask={_MASKS[kind]}"
        if store.add:
            text = f"tl.load({pointer}{mask}) + {text}"
        self._guarded(store.guard, f"tl.store({pointer}, {text}{mask})")

    def _kind_of(self, place: Place) -> str:
        axes = set(place.axes)
        if self.layout.flat:
            return "tile" if axes else "scalar"
        has_rows, has_cols = bool(axes & set(self.layout.rows)), bool(axes & set(self.layout.cols))
        return "tile" if has_rows and has_cols else "row" if has_rows else "col" if has_cols else "scalar"

    def _guarded(self, guard: str, line: str) -> None:
        last = self.block.tail
        if guard and f"if {guard}:" in last and last[-1].startswith("    ") and last[_last_if(last)] == f"if {guard}:":
            last.append(f"    {line}")
        else:
            last += [f"if {guard}:", f"    {line}"] if guard else [line]

    def _accumulate(self) -> None:
        for acc in self.spec.accumulators:
            operand = acc.operand
            self.bind(operand)
            text = self.speller.text(operand)
            if self.row_lanes.of(operand) != 0.0:
                text = f"tl.where(mask, {text}, 0.0)"
            reduced = f"tl.sum({text})" if not acc.value.axes else f"tl.sum({text}, axis=0, keep_dims=True)"
            self._guarded(acc.guard, f"{acc.name} += {reduced}")

    # The whole text

    def text(self) -> KernelText:
        if self.spec.looped:
            lines = self._looped()
        else:
            self._whole_rows()
            lines = self._flat() if self.layout.flat else self._persistent() if self.spec.persistent else self._rows()
        pointers = [place.name for value, place in self.spec.loads.items() if value in self.uses]
        pointers += [store.place.name for store in self.spec.stores]
        pointers = list(dict.fromkeys(pointers)) + [f"{a.name}_partial" for a in self.spec.accumulators]
        flags = [f"HAS_{self.spec.loads[v].name.upper()}" for v in self.spec.optional if v in self.uses]
        return KernelText(
            self.spec.name,
            tuple(pointers),
            tuple(axis for axis in self.graph.sizes if axis in self.speller.sizes),
            tuple(sorted(self.speller.scalars)),
            (*flags, *self.spec.guards),
            tuple(lines),
        )

    def _whole_rows(self) -> None:
        for value in self.spec.loads:
            if value in self.uses:
                self.bind(value)
        for store in sorted(self.spec.stores, key=lambda s: s.value.index):
            self._bind_in_order([store.value])
            self._store(store)
        self._accumulate()

    def _bind_in_order(self, roots: list[Value]) -> None:
        """Statements in the order in which values were made, which is the reference's own order."""
        needed = set(self.graph.walk(roots, [*self.spec.loads, *self.speller.bound]))
        for value in self.values:
            if value in needed and value in self.named:
                self.bind(value)

    def _flat(self) -> list[str]:
        return [
            "offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)",
            "mask = offsets < n_elements",
            *self.block.lines(),
        ]

    def _rows(self) -> list[str]:
        return [
            "rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
            "cols = tl.arange(0, BLOCK_COLS)[None, :]",
            *self._masks(inside=True, outside=True),
            *self._offsets(),
            *self.block.lines(),
        ]

    def _offsets(self) -> list[str]:
        return ["offsets = rows * n_cols + cols"] if self.plain else []

    def _masks(self, inside: bool, outside: bool) -> list[str]:
        text = "\n".join([*self.head, *self.block.all()])
        split = "row_mask" in text or "col_mask" in text or self.spec.persistent
        if not split:
            return ["mask = (rows < n_rows) & (cols < n_cols)"]
        lines = []
        if inside:
            lines.append("row_mask = rows < n_rows")
        if outside:
            lines.append("col_mask = cols < n_cols")
        if inside and "=mask" in text or "(mask" in text:
            lines += ["mask = row_mask & col_mask"] if inside else []
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
            *self._offsets(),
            *self.block.lines(),
        ]
        return [
            "cols = tl.arange(0, BLOCK_COLS)[None, :]",
            *self._masks(inside=False, outside=True),
            *self.head,
            *zeros,
            "",
            "for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):",
            *_indented(loop),
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

    # Rows in blocks of columns

    def _looped(self) -> list[str]:
        passes, after = arrange(self.graph, self.spec, self.values)
        lines = [
            "rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
            "row_mask = rows < n_rows",
        ]
        for value in self.spec.loads:
            if value in self.uses and self.kind(value) in ("row", "scalar"):
                self.bind(value)
        lines += [line for line in self._drain() if line]
        for one in passes:
            lines += self._pass(one)
        for store in after:
            self._bind_in_order([store.value])
            self._store(store)
        rest = self._drain()
        return lines + (["", *[line for line in rest if line]] if rest else [])

    def _drain(self) -> list[str]:
        """The statements gathered so far; a new block begins, and addresses are made anew in it."""
        lines, self.block = self.block.lines(), _Block()
        return lines

    def _pass(self, one: Pass) -> list[str]:
        """One loop over a row's blocks of columns, and the row values that are known after it."""
        before = self._row_values([*one.needs])
        bound, shared = dict(self.speller.bound), dict(self.shared)
        starts = [line for value in one.reductions for line in self._start(value)]
        starts += [f"{self.name_of(peak)} = {_zeros('max')}" for peak, _ in one.online]
        starts += [f"{self.name_of(total)} = {_zeros('sum')}" for _, total in one.online]
        self.plain = False
        for value in self.spec.loads:
            if value in one.loads:
                self.bind(value)
        tiles = [
            *(v.args[0] for v in one.reductions),
            *(p.args[0] for p, _ in one.online),
            *(s.value for s in one.stores),
        ]
        self._bind_in_order([t for t in tiles])
        for tile in tiles:
            self.bind(tile)
        for peak, total in one.online:
            self._online(peak, total)
        for value in one.reductions:
            self._continue(value)
        for store in one.stores:
            self._store(store)
        body = self._loop_head() + self._drain()
        self.speller.bound, self.shared = bound, shared
        for value in (*one.reductions, *(v for pair in one.online for v in pair)):
            self.speller.bound[value] = self.name_of(value)
        loop = "for start in range(0, n_cols, BLOCK_COLS):"
        return [*before, "", *starts, loop, *_indented(body)]

    def _loop_head(self) -> list[str]:
        text = "\n".join(self.block.all())
        head = ["cols = (start + tl.arange(0, BLOCK_COLS))[None, :]"]
        if any(" * " in line and "cols" in line for line in self.block.addresses):
            head = ["cols = (start + tl.arange(0, BLOCK_COLS).to(tl.int64))[None, :]"]
        if "col_mask" in text:
            head.append("col_mask = cols < n_cols")
        head.append("mask = row_mask & col_mask" if "col_mask" in text else "mask = row_mask & (cols < n_cols)")
        return head + self._offsets()

    def _row_values(self, needed: list[Value]) -> list[str]:
        """Row values that a pass needs, computed before it."""
        for value in self.values:
            ready = value in needed and value in self.named and value not in self.speller.bound
            if ready and self.kind(value) in ("row", "scalar"):
                self.bind(value)
        return [line for line in self._drain() if line]

    def _start(self, value: Value) -> list[str]:
        return [f"{self.name_of(value)} = {_zeros(value.op)}"]

    def _continue(self, value: Value) -> None:
        name, inner = self.name_of(value), self.padded(value)
        reduced = f"tl.{value.op}({inner}, axis=1, keep_dims=True)"
        step = f"{name} += {reduced}" if value.op == "sum" else f"{name} = tl.{value.op}imum({name}, {reduced})"
        self.block.body.append(step)

    def _online(self, peak: Value, total: Value) -> None:
        """Maximum and sum of exponentials in one pass: the sum so far is rescaled when the maximum grows."""
        high, sum_ = self.name_of(peak), self.name_of(total)
        x = self.speller.text(peak.args[0])
        lane = self.lanes.of(peak.args[0])
        inner = x if lane == -math.inf else f'tl.where(mask, {x}, float("-inf"))'
        self.block.body += [
            f"new_max = tl.maximum({high}, tl.max({inner}, axis=1, keep_dims=True))",
            'shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # no NaN while all is -inf',
            f"{sum_} = {sum_} * tl.exp({high} - shift) + tl.sum(tl.exp({inner} - shift), axis=1, keep_dims=True)",
            f"{high} = new_max",
        ]


_MASKS = {"tile": "mask", "row": "row_mask", "col": "col_mask"}


def _fill_text(fill: Lane) -> str:
    return "0.0" if fill == 0.0 else f'float("{fill}")'


def _zeros(op: str) -> str:
    if op == "sum":
        return "tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)"
    return f"tl.full((BLOCK_ROWS, 1), {_fill_text(_FILL[op])}, dtype=tl.float32)"


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def _last_if(lines: list[str]) -> int:
    return max(i for i, line in enumerate(lines) if line.startswith("if "))
