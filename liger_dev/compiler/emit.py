"""A KernelSpec in, the text of a Triton kernel out: whole rows, one after another or a run of elements."""

import re

from liger_dev.compiler.elements import corrected
from liger_dev.compiler.emit_looped import LoopedRows
from liger_dev.compiler.emit_scattered import ScatteredRows
from liger_dev.compiler.emit_wide import WideRows
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.kernel_text import KernelText
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.naming import unique
from liger_dev.compiler.ops import ATOM
from liger_dev.compiler.schedule import Accumulator
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.schedule import factored
from liger_dev.compiler.statements import Statements
from liger_dev.compiler.statements import indented

_NAME = re.compile(r"[A-Za-z_]\w*")


def emit_kernel(graph: Graph, spec: KernelSpec) -> KernelText:
    if spec.looped:
        return (WideRows if spec.wide else LoopedRows)(graph, corrected(graph, spec)).text()
    return (ScatteredRows if spec.scatter is not None else WholeRows)(graph, spec).text()


class WholeRows(Statements):
    """Programs that hold all columns of their rows; persistent ones stride over rows and keep sums."""

    def __init__(self, graph: Graph, spec: KernelSpec) -> None:
        super().__init__(graph, spec)
        self.factored = factored(spec)
        self.columns: list[str] = []

    def lines(self) -> list[str]:
        self._whole_rows()
        return self._flat() if self.layout.flat else self._persistent() if self.spec.persistent else self._rows()

    def _whole_rows(self) -> None:
        for value in self.spec.loads:
            if value in self.uses:
                self.bind(value)
        for store in sorted(self.spec.stores, key=lambda s: s.value.index):
            self._bind_in_order([store.value])
            self._store(store)
        self._accumulate()
        if self.spec.persistent:
            self._reload()
        elif not self.layout.flat:
            self._store_early()
            self._read_again()
            self._load_late()
            tiles = [v for v in self.spec.loads if v in self.uses and self.kind(v) == "tile"]
            self.holds = len(tiles) if self._reduced() and all(map(self.read_once, tiles)) else 0

    def _accumulate(self) -> None:
        """Sums over rows: each row of a step has one of its own until the end, which spares a reduction a step, and digits."""
        for one in dict.fromkeys(one.kept for one in self.factored.values()):
            guards = [acc.guard for acc, other in self.factored.items() if other.kept is one]
            self.bind(one)
            text = self.speller.text(one)
            text = f"tl.where(mask, {text}, 0.0)" if self.row_lanes.of(one) != 0.0 else text
            self._guarded(" or ".join(guards) if all(guards) else "", f"{self._sum_of(one)} += {text}")
        for factor in (factor for one in self.factored.values() for factor in one.factors):
            self.bind(factor)
        for acc in (acc for acc in self.spec.accumulators if acc not in self.factored):
            operand = acc.operand
            self.bind(operand)
            text, kind = self.speller.text(operand), self.kind(operand)
            assert kind == "tile" or not self.spec.pieces, "each of a row's programs would add it up"
            mask = {"row": "row_mask", "col": "col_mask"}.get(kind, "mask")  # of the operand's own shape
            if self.row_lanes.of(operand) != 0.0 or not self._by_column(acc) and self.lanes.of(operand) != 0.0:
                text = f"tl.where({mask}, {text}, 0.0)"
            self._guarded(acc.guard, f"{acc.name} += {f'tl.sum({text})' if self._in_one_number(acc) else text}")

    def _sum_of(self, kept: Value) -> str:
        """The name of the sum that several accumulators share but for their factors."""
        return unique(f"{self.name_of(kept)}_sum", {*self.speller.bound.values(), *self.taken})

    def _in_one_number(self, acc: Accumulator) -> bool:
        """Whether a program keeps a total as one number. Where nothing else waits for all of a program's lanes, each of
        them keeps its own."""
        return not self._by_column(acc) and not self.spec.pieces

    def _by_column(self, acc: Accumulator) -> bool:
        return not acc.value.axes.isdisjoint(self.layout.cols)

    def _store_early(self) -> None:
        """Moves stores of what needs no reduction before the first one: a row's stores then overlap with its reductions,
        and what is stored need not be kept in the precision that it was computed in.

        Add and RMSNorm of 16384 columns, with 16 warps: 63 registers a thread, 82 otherwise, and so two programs a
        multiprocessor instead of one.
        """
        body = self.block.body
        first = next((i for i, line in enumerate(body) if "axis=1" in line), 0)
        later = {name for line in body[first:] if (name := self.assigned_name(line.strip())) in self.assigned}
        tiles = [line for line in self.block.tail if line.startswith("tl.store(") and line.endswith(" mask=mask)")]
        early = [line for line in tiles if not later & _words([line])]
        if first:
            self.block.tail = [line for line in self.block.tail if line not in early]
            body[first:first] = early

    def _read_again(self) -> None:
        """Reads the rows of all tensors but one again after the last reduction, if several would be held until then: the
        cache still has them, and registers that they leave hold more rows.

        Softmax backward of 8192 rows of 4096 columns on an H200: 0.0508 ms, holding both 0.0529; of 16384 columns 0.189
        and 0.196; of 32000 columns 0.364 and 0.391.
        """
        body, end = self.block.body, self._reduced()
        if not end or any(v.op in SCANS for v in self.values):
            return
        made = {line: self._rows_in(v) for line in (*self.block.loads, *body[:end]) if (v := self._target(line))}
        after = _words([*body[end:], *self.block.tail])
        *held, kept = [line for line, rows in made.items() if rows and self.assigned_name(line) in after] or [""]
        reduced = _words([line.partition(" = ")[2] for line in body[:end]])
        held = [line for line in held if self.assigned_name(line) in reduced]
        held = [line for line in held if len(made[line]) == 1 and not made[line] & made[kept]]
        if not held:
            return
        self.again = True
        again = set().union(*(made[line] for line in held))
        wanted = [self.assigned_name(line) for line in held]
        repeated = self._needed([line for line, rows in made.items() if rows and rows <= again], wanted)
        body[end:end] = ["# From the cache again, rather than held.", *repeated]
        for i, line in enumerate(self.block.loads):
            if made[line] & again:
                (tile,) = made[line]
                self.block.loads[i] = f"{self.name_of(tile)} = {self._load(tile, 'evict_last')}"

    def _rows_in(self, value: Value) -> set[Value]:
        """The tensors' rows that a tile is made of, element by element."""
        stops = [v for v in self.values if v in self.spec.loads or self.kind(v) != "tile"]
        return set(filter(self._row_of_its_own, self.graph.walk([value], stops)))

    def _load_late(self) -> None:
        """Moves loads of what wide rows share behind the last reduction, and behind the stores of what it gave, if they are
        not needed before: they would hold registers that limit how many programs a multiprocessor takes, while the loads
        themselves are quick. Other rows have the registers, and then wait for nothing.

        LayerNorm of 8192 rows of 16384 columns on an H200: 0.143 ms with 64 registers a thread, 0.211 with 97. RMSNorm of
        4096 columns: 0.0371 ms with its weight loaded at once, 0.0380 with it loaded late; a modulated one of 8192 columns
        0.0731 and 0.0763.
        """
        body, end = self.block.body, self._reduced()
        words = _words(body[:end])
        shared = [line for line in self.block.loads if (value := self._target(line)) and self._shared(value)]
        late = [line for line in shared if end and self.assigned_name(line) not in words]
        rows = [v for v in self.spec.loads if v in self.uses and self._row_of_its_own(v)]
        self.lean = len(late) if len(rows) == 1 else 0
        if not late:
            return
        names = {self.assigned_name(line) for line in late}
        at = next((i for i in range(end, len(body)) if names & _words([body[i]])), len(body))
        later = {self.assigned_name(line) for line in body[at:]}
        stores = [line for line in self.block.tail if line.startswith("tl.store(") and line.endswith(" mask=row_mask)")]
        done = [line for line in stores if not later & _words([line])]
        self.block.tail = [line for line in self.block.tail if line not in done]
        body[at:at] = done
        self.late = not self.spec.narrow
        if self.late:
            self.block.loads = [line for line in self.block.loads if line not in late]
            self.block.loads += ["if not LATE:", *indented(late)]
            body[at + len(done) : at + len(done)] = ["if LATE:", *indented(late)]

    def _row_of_its_own(self, value: Value) -> bool:
        return value in self.spec.loads and self.kind(value) == "tile" and self.read_once(value)

    def _shared(self, value: Value) -> bool:
        return self.kind(value) in ("tile", "col") and not self.read_once(value)

    def _reduced(self) -> int:
        """How many statements it takes until all reductions are done; 0 without any."""
        body = self.block.body
        end = max((i + 1 for i, line in enumerate(body) if "axis=1" in line), default=0)
        while 0 < end < len(body) and body[end].startswith(" "):  # a search for a threshold ends with its loop
            end += 1
        return end

    def _reload(self) -> None:
        """Lets wide rows load and compute again, after the last reduction, what they can't keep in registers until then.

        What is the same for all rows is then loaded with each of them, too.
        """
        body, end = self.block.body, self._reduced()
        after = [*body[end:], *self.block.tail]
        again = self._needed([*self.head, *self.group, *self.block.loads, *body[:end]], after)
        if not end or not again or any(v.op in SCANS for v in self.values):
            return
        self.reloads = True
        held: list[str] = []
        for outside in (self.head, self.group):
            columns = [line for line in outside if (value := self._target(line)) and self.kind(value) == "col"]
            outside[:] = [line for line in outside if line not in columns]
            outside += ["if not RELOAD:", *indented(columns)] if columns else []
            held += columns
        if held:
            self.block.loads[:0] = ["if RELOAD:", *indented(held)]
        self.columns = held
        body[end:] = ["if RELOAD:  # what did not stay in registers", *indented(again), *body[end:]]

    def _needed(self, before: list[str], after: list[str]) -> list[str]:
        """The statements of `before`, in order, whose tiles and columns `after` reads, as it has to repeat them."""
        lines: list[str] = []
        words = _words(after)
        for line in reversed(before):
            value = self._target(line)
            name = self.name_of(value) if value else ""
            if value and name in words and self.kind(value) in ("tile", "col"):
                words |= _words([line])
                if value in self.spec.loads:
                    line = f"{name} = {self._load(value, 'evict_first' if self.read_once(value) else 'evict_last')}"
                lines.insert(0, line)
        return lines

    def _target(self, line: str) -> Value | None:
        """The value that a statement assigns; None for an address."""
        return self.assigned.get(self.assigned_name(line))

    @staticmethod
    def assigned_name(line: str) -> str:
        return line.split(" = ", 1)[0]

    def _flat(self) -> list[str]:
        if not self.layout.cols:  # one program computes numbers
            return self.block.lines()
        return [
            "offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)",
            "mask = offsets < n_elements",
            *self.block.lines(),
        ]

    def _rows(self) -> list[str]:
        return [
            "rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
            self._columns(),
            *self._masks(inside=True, outside=True),
            *self._offsets(),
            *self.block.lines(),
        ]

    def _columns(self) -> str:
        if self.spec.pieces:
            return (
                f"cols = (tl.program_id({self._piece}).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]"
            )
        return "cols = tl.arange(0, BLOCK_COLS)[None, :]"

    @property
    def _piece(self) -> int:
        """The grid's dimension that goes over pieces of rows."""
        return 2 if self.layout.groups else 1

    def _masks(self, inside: bool, outside: bool) -> list[str]:
        text = "\n".join([*self.head, *self.block.all()])
        split = "row_mask" in text or "col_mask" in text or self.spec.persistent
        if not split:
            return ["mask = (rows < n_rows) & (cols < n_cols)"]
        lines = []
        if inside:
            members = f"member < {self._members()}" if self.layout.groups else "rows < n_rows"
            lines.append(f"row_mask = {members}")
        if outside:
            lines.append("col_mask = cols < n_cols")
        if inside and "=mask" in text or "(mask" in text:
            lines += ["mask = row_mask & col_mask"] if inside else []
        return lines

    def _persistent(self) -> list[str]:
        own = [acc for acc in self.spec.accumulators if acc not in self.factored]
        groups = [acc for acc in own if acc.value.axes & {*self.layout.groups}]
        whole = [acc for acc in own if acc not in groups]
        lines = [self._columns(), *self._masks(inside=False, outside=True), *self.head, *map(self._zeros, whole), ""]
        if self.layout.groups:
            program = "(group * tl.num_programs(1) + tl.program_id(1))"
            lines += [
                f"for number in range(tl.program_id(0), n_rows // {self._members()}, tl.num_programs(0)):",
                "    group = tl.cast(number, tl.int64)",
                *indented([*self.group, *map(self._zeros, groups), *self._zeros_of_factored(), "", *self._over_rows()]),
                "",
                *indented([*self._partials(groups, program), *self._partials_of_factored(program)]),
            ]
            program = "(tl.program_id(0) * tl.num_programs(1) + tl.program_id(1))"
        else:
            lines += self._over_rows()
            program = "tl.program_id(0)"
        return [*lines, *([""] if whole else []), *self._partials(whole, program)]

    def _over_rows(self) -> list[str]:
        """The loop over a program's rows: those of the whole tensor, or of one group."""
        rows, first, step = "n_rows", "tl.program_id(0)", "tl.num_programs(0)"
        counted = ["rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]"]
        if self.layout.groups:
            rows, first, step = self._members(), "tl.program_id(1)", "tl.num_programs(1)"
            counted = [
                "member = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
                f"rows = group * {rows} + member",
            ]
        bare = rows.strip("()")
        loop = [*counted, *self._masks(inside=True, outside=False), *self._offsets(), *self.block.lines()]
        return [
            f"for block in tl.range({first}, tl.cdiv({bare}, BLOCK_ROWS), {step}, num_stages=NUM_STAGES):",
            *indented(loop),
        ]

    def _members(self) -> str:
        """How many rows a group has."""
        text, strength = self.speller.size(self.layout.members)
        return text if strength == ATOM else f"({text})"

    def _zeros(self, acc: Accumulator) -> str:
        tile = "tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)"
        return f"{acc.name} = {'0.0' if self._in_one_number(acc) else tile}"

    def _zeros_of_factored(self) -> list[str]:
        kept = dict.fromkeys(one.kept for one in self.factored.values())
        return [f"{self._sum_of(one)} = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)" for one in kept]

    def _partials_of_factored(self, program: str) -> list[str]:
        """The stores of what a program has summed up in a group of rows, by the factors that these share."""
        stores: list[str] = []
        for acc, one in self.factored.items():
            product = [f"tl.sum({self._sum_of(one.kept)}, axis=0, keep_dims=True)"]
            product += [self.speller.operand(factor, ATOM) for factor in one.factors]
            line = f"tl.store({acc.name}_partial_ptr + {program} * n_cols + cols, {' * '.join(product)}, mask=col_mask)"
            stores += [f"if {acc.guard}:", f"    {line}"] if acc.guard else [line]
        again = self._needed(self.columns, stores)
        return [*(["if RELOAD:", *indented(again)] if again else []), *stores]

    def _partials(self, accumulators: list[Accumulator], program: str) -> list[str]:
        """The stores of what a program has summed up, in its own row of the partial sums."""
        lines = []
        for acc in accumulators:
            pointer = f"{acc.name}_partial_ptr + {program}"
            if self._by_column(acc):
                columns = f"tl.sum({acc.name}, axis=0, keep_dims=True)"
                line = f"tl.store({pointer} * n_cols + cols, {columns}, mask=col_mask)"
            elif self._in_one_number(acc):
                line = f"tl.store({pointer}, {acc.name})"
            else:
                piece = f"tl.num_programs({self._piece}) + tl.program_id({self._piece})"
                line = f"tl.store({pointer} * {piece}, tl.sum({acc.name}))"
            lines += [f"if {acc.guard}:", f"    {line}"] if acc.guard else [line]
        return lines


def _words(lines: list[str]) -> set[str]:
    return set(_NAME.findall("\n".join(lines)))
