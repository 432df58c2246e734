"""A KernelSpec in, the text of a Triton kernel out: whole rows, one after another or a run of elements."""

from liger_dev.compiler.emit_looped import LoopedRows
from liger_dev.compiler.emit_scattered import ScatteredRows
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.schedule import KernelSpec
from liger_dev.compiler.statements import KernelText
from liger_dev.compiler.statements import Statements
from liger_dev.compiler.statements import indented


def emit_kernel(graph: Graph, spec: KernelSpec) -> KernelText:
    kind = ScatteredRows if spec.scatter is not None else LoopedRows if spec.looped else WholeRows
    return kind(graph, spec).text()


class WholeRows(Statements):
    """Programs that hold all columns of their rows; persistent ones stride over rows and keep sums."""

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

    def _accumulate(self) -> None:
        for acc in self.spec.accumulators:
            operand = acc.operand
            self.bind(operand)
            text = self.speller.text(operand)
            if self.row_lanes.of(operand) != 0.0:
                text = f"tl.where(mask, {text}, 0.0)"
            reduced = f"tl.sum({text})" if not acc.value.axes else f"tl.sum({text}, axis=0, keep_dims=True)"
            self._guarded(acc.guard, f"{acc.name} += {reduced}")

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
            *indented(loop),
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
