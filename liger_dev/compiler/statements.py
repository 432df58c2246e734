"""Values of one kernel in, its statements out: what has a name, how each is loaded, computed, masked and stored."""

import math

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.layout import WHOLE_ROW
from liger_dev.compiler.layout import address
from liger_dev.compiler.layout import along
from liger_dev.compiler.moves import bounds
from liger_dev.compiler.naming import suggest
from liger_dev.compiler.naming import unique
from liger_dev.compiler.needs import FILL
from liger_dev.compiler.needs import Needs
from liger_dev.compiler.padding import Lane
from liger_dev.compiler.precision import exact_quotients
from liger_dev.compiler.precision import flushed_exponentials
from liger_dev.compiler.precision import rounds_products
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import Place
from liger_dev.compiler.schedule import Store
from liger_dev.compiler.searches import kth_largest
from liger_dev.compiler.searches import simplex_threshold
from liger_dev.compiler.spelling import Speller
from liger_dev.errors import Unsupported

_MASKS = {"tile": "mask", "row": "row_mask", "col": "col_mask"}


@dataclass
class Block:
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


class Statements(Needs):
    """One kernel as it grows: what stands outside its loops (`head`), inside the one over groups of rows (`group`), and
    the block inside. `lines` gives its text."""

    def __init__(self, graph: Graph, spec: KernelSpec) -> None:
        super().__init__(graph, spec)
        self.head: list[str] = []
        self.group: list[str] = []
        self.block = Block()
        self.assigned: dict[str, Value] = {}
        self.reloads = False
        self.at_once = 0
        self.online = False
        self.late = False
        self.lean = 0
        self.holds = 0
        self.again = False
        self.light = False
        self.evictions: dict[Value, str] = {}
        self.last_use = False
        self.plain = False
        self.speller = Speller(graph, spec.layout, self.like, self.reduction)
        self.shared: dict[str, str] = {}
        self.speller.exact = exact_quotients(graph, self.values)
        self.speller.flushed = flushed_exponentials(graph, self.values)

    # Expressions

    def reduction(self, value: Value) -> str:
        inner = self.padded(value)
        if value.op in SCANS:
            return scan_text(value, inner)
        if self.propagates(value):
            return f"tl.reduce({inner}, 1, larger_or_nan, keep_dims=True)"
        return f"tl.{value.op}({inner}, axis=1, keep_dims=True)"

    def propagates(self, value: Value) -> bool:
        """Whether a maximum has to be NaN where its row holds one. It need not where it only shifts the row, whose sum
        tells, nor in gradients, where NaNs depend on how a formula is written."""
        gradients = {f"d{item.name}" for item in self.graph.inputs}
        if "nan" not in dict(value.attrs) or self.spec.accumulators or self.spec.totals:
            return False
        if any(store.place.name in gradients for store in self.spec.stores):
            return False
        users = [v for v in self.values if value in v.args and v not in self.spec.loads]
        shifts = [v for v in users if v.op == "sub" and v.args[0] is value.args[0]]
        return len(shifts) < len(users) or any(store.value is value for store in self.spec.stores)

    def padded(self, value: Value) -> str:
        """A reduction's operand, masked unless its padded lanes are neutral anyway."""
        operand, fill = value.args[0], FILL[value.op]
        if not along(value) <= set(self.layout.cols):
            raise Unsupported(
                f"a {value.op} over {', '.join(sorted(along(value)))} inside of what is computed for each row",
                self.graph.line_of(value),
            )
        text = self.speller.text(operand)
        if self.lanes.of(operand) == fill:
            whole = self.kind(operand) == "tile" or not self.layout.rows
            return text if whole else f"tl.broadcast_to({text}, (BLOCK_ROWS, BLOCK_COLS))"
        if operand.op == "where" and operand not in self.speller.bound:
            condition, kept, other = (self.speller.text(arg) for arg in operand.args)
            if other == fill_text(fill):
                condition = condition if condition.isidentifier() else f"({condition})"
                return f"tl.where(mask & {condition}, {kept}, {other})"
        return f"tl.where(mask, {text}, {fill_text(fill)})"

    def like(self, value: Value) -> str:
        """A pointer of this kernel that has the dtype that a rounding is to."""
        like = value.attr("like")
        given = [v for v, place in self.spec.loads.items() if v in self.uses and not place.exact]
        names = {self.spec.loads[v].name for v in given if v not in self.spec.optional}
        stored = {store.place.name for store in self.spec.stores}
        for output in self.graph.outputs:
            if tuple(sorted(output.dtype_of)) == like:
                for pointer in (output.name, f"d{output.name}"):
                    if pointer in names or pointer in stored:
                        return f"{pointer}_ptr.dtype.element_ty"
        found = [name for name in like if name in names]
        if not found:
            raise Unsupported(
                f"a rounding to the dtype of {', '.join(like)} in a kernel that reads none of it",
                self.graph.line_of(value),
                "cast to the dtype of a tensor that the same value is made of",
            )
        return f"{found[0]}_ptr.dtype.element_ty"

    # Statements

    def bind(self, value: Value) -> None:
        """Emits the loads and named values that `value` needs, arguments first, then the value itself if it is named."""
        if value in self.speller.bound:
            return
        if value in self.spec.loads:
            self._assign(value, self._load(value, self.evictions.get(value, "")), self.block.loads)
            return
        if value in self.singles:
            tile, position = self.singles[value]
            self.bind(position)
            at = f"{self.spec.loads[tile].name}_at_{self.speller.text(position)}"
            self.names.setdefault(value, unique(at, {*self.taken, *self.names.values()}))
            self._assign(value, self._element(tile, position), self.block.body)
            return
        for arg in value.args:
            self.bind(arg)
        if value.op in WHOLE_ROW:
            self._search(value)
        elif value in self.named:
            text = self.speller.text(value)
            if value in self.lanes.masked:
                text = f"tl.where(mask, {text}, 0.0)"
            self._assign(value, text, self.block.body)

    def _search(self, value: Value) -> None:
        """The statements that find a number of each row that no single reduction gives."""
        name, row = self.name_of(value), self.padded(value)
        self.speller.bound[value] = name
        if value.op == "kth_largest":
            self.block.body += kth_largest(name, row, value.attr("k"))
        else:
            self.block.body += simplex_threshold(name, row, value.attr("total"))

    def _assign(self, value: Value, text: str, block: list[str]) -> None:
        name = self.name_of(value)
        self.speller.bound[value] = name
        self.assigned[name] = value
        self._outside(self.kind(value), value.axes, block).append(f"{name} = {text}")

    def _outside(self, kind: str, axes: Iterable[str], block: list[str]) -> list[str]:
        """Where a statement belongs: outside of the loop over rows if it is the same for all of them, else in `block`."""
        if not self.spec.persistent or kind not in ("col", "scalar"):
            return block
        return self.head if set(axes).isdisjoint(self.layout.groups) else self.group

    def name_of(self, value: Value) -> str:
        if value not in self.names:
            taken = {*self.speller.bound.values(), *self.taken, *self.names.values()}
            self.names[value] = unique(suggest(value, self.speller.bound), taken)
        return self.names[value]

    def at(self, place: Place, kind: str, owner: str) -> str:
        """The pointer expression of a place; an address that is not plain rows, columns or offsets gets a name."""
        found = address(self.graph, self.layout, place.dims, place.slices)
        self.speller.sizes.update(found.sizes)
        text = found.text
        if text == "0":
            return f"{place.name}_ptr"
        if text in ("rows", "cols", "offsets", "group") or text.isdigit():
            return f"{place.name}_ptr + {text}"
        if not self.layout.flat and text == "rows * n_cols + cols":
            self.plain = True
            return f"{place.name}_ptr + offsets"
        if not self.layout.flat and text.startswith(("rows * n_cols + cols + ", "rows * n_cols + cols - ")):
            self.plain = True
            return f"{place.name}_ptr + {text.replace('rows * n_cols + cols', 'offsets', 1)}"
        if _counted_by(place):
            return f"{place.name}_ptr + {text}"
        if text not in self.shared:
            self.shared[text] = unique(f"{owner}_offsets", {*self.shared.values(), *self.taken})
            self._outside(kind, place.axes, self.block.addresses).append(f"{self.shared[text]} = {text}")
        return f"{place.name}_ptr + {self.shared[text]}"

    def _load(self, value: Value, eviction: str = "") -> str:
        place, kind = self.spec.loads[value], self.kind(value)
        for index in (v for v in self.spec.loads if v.op == "input" and v.attr("name") in _counted_by(place)):
            self.bind(index)
        pointer = self.at(place, kind, self.name_of(value))
        policy = f', eviction_policy="{eviction}"' if eviction else ""
        if kind == "scalar":
            text = f"tl.load({pointer})"
        else:
            fill = fill_text(self.fills.get(value, 0.0)) if value.dtype == "float" else "0"
            text = f"tl.load({pointer}, mask={' & '.join([_MASKS[kind], *self._inside(place)])}, other={fill}{policy})"
        if value.dtype == "float" and not place.exact:
            text = f"{text}.to(tl.float32)"
        if value.dtype == "bool":
            text = f"{text} != 0"
        if value in self.spec.optional:
            text = f"{text} if HAS_{place.name.upper()} else {self.spec.optional[value]}"
        return text

    def _element(self, tile: Value, position: Value) -> str:
        """One element of each row, read alone; 0 where a row has no element at that position."""
        place, at = self.spec.loads[tile], self.speller.text(position)
        cast = "" if place.exact else ".to(tl.float32)"
        return f"tl.load({place.name}_ptr + rows * n_cols + {at}, mask={inside_row(at)}, other=0.0){cast}"

    def _inside(self, place: Place) -> list[str]:
        """The conditions under which a read does not leave its dimension."""
        conditions = []
        for position, piece in place.slices:
            if piece.outside != "zero":
                continue
            (axis,) = piece.axes
            low, high = bounds(self.graph, place.dims[position][0], axis, piece.first)
            index = self.speller.index(axis)[0]
            size = self.speller.size((axis,))[0]
            conditions += [f"({index} >= {low})"] if low else []
            conditions += [f"({index} < {size} - {high})"] if high else []
        return conditions

    def _store(self, store: Store) -> None:
        self.bind(store.value)
        kind = self._kind_of(store.place)
        text = self.speller.text(store.value)
        pointer = self.at(store.place, kind, self.names.get(store.value, store.place.name))
        if kind == "scalar" and self.layout.cols and not self.layout.rows and not self.layout.flat:
            pointer, kind = f"{pointer} + rows", "row"  # the one row that there is
        mask = "" if kind == "scalar" else f", mask={_MASKS[kind]}"
        if store.add:
            text = f"tl.load({pointer}{mask}) + {text}"
        policy = ', eviction_policy="evict_first"' if self.last_use and kind == "tile" else ""
        self._guarded(store.guard, f"tl.store({pointer}, {text}{mask}{policy})")

    def _kind_of(self, place: Place) -> str:
        if self.layout.flat:
            return "tile" if place.axes else "scalar"
        return self.layout.kind_of(place.axes)

    def _guarded(self, guard: str, line: str) -> None:
        last = self.block.tail
        if guard and f"if {guard}:" in last and last[-1].startswith("    ") and last[_last_if(last)] == f"if {guard}:":
            last.append(f"    {line}")
        else:
            last += [f"if {guard}:", f"    {line}"] if guard else [line]

    # The whole text

    def text(self) -> KernelText:
        lines = self.lines()
        used = {*self.uses, *(tile for tile, _ in self.singles.values())}
        pointers = [place.name for value, place in self.spec.loads.items() if value in used]
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
            reloads=self.reloads,
            at_once=self.at_once,
            online=self.online,
            late=self.late,
            lean=self.lean,
            holds=self.holds,
            again=self.again,
            light=self.light,
            unfused=rounds_products(self.values, self.spec.loads),
            wide=self.spec.wide,
        )

    def _bind_in_order(self, roots: list[Value]) -> None:
        """Statements in the order in which values were made, which is the reference's own order."""
        known = [*self.spec.loads, *self.speller.bound, *self.singles]
        needed = set(self.graph.walk(roots, known))
        needed |= set(self.graph.walk([self.singles[v][1] for v in needed if v in self.singles], known))
        for value in self.values:
            if value in needed and value in self.named:
                self.bind(value)

    def _offsets(self) -> list[str]:
        return ["offsets = rows * n_cols + cols"] if self.plain else []

    def lines(self) -> list[str]:
        raise NotImplementedError


def _counted_by(place: Place) -> list[str]:
    return [piece.at for _, piece in place.slices if piece.at]


def scan_text(value: Value, operand: str) -> str:
    return f"tl.{value.op}({operand}, axis=1{', reverse=True' if value.attr('reverse') else ''})"


def inside_row(position: str) -> str:
    """The condition under which each row has an element at its `position`."""
    return f"row_mask & ({position} >= 0) & ({position} < n_cols)"


def fill_text(fill: Lane) -> str:
    return f'float("{fill}")' if fill in (math.inf, -math.inf) else str(fill)


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def _last_if(lines: list[str]) -> int:
    return max(i for i, line in enumerate(lines) if line.startswith("if "))
