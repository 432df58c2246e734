"""The gradient of rows that were looked up in a table in, the kernel that adds them up row by row of the table out."""

from dataclasses import replace

from liger_dev.compiler.ir import Slice
from liger_dev.compiler.statements import Statements
from liger_dev.compiler.statements import indented


class ScatteredRows(Statements):
    """A program a row and block of columns: the first row of an index takes the gradients of all rows of that index.

    Each row of the table is written once, by sums in a fixed order: no atomics, and the same bits each time.
    """

    def lines(self) -> list[str]:
        index = self.spec.scatter
        assert index is not None
        (store,) = self.spec.stores
        cut = tuple((i, replace(piece, at="own") if piece.at else piece) for i, piece in store.place.slices)
        row = self.at(replace(store.place, slices=cut), "row", "own")
        name, pointer = self.name_of(index), self.at(self.spec.loads[index], "row", self.name_of(index))
        self.speller.bound[index] = name
        for value in self.spec.loads:
            if value in self.uses and value is not index:
                self.bind(value)
        self._bind_in_order([store.value])
        self.bind(store.value)
        text, gradient = self.speller.text(store.value), store.place.name
        if self.row_lanes.of(store.value) != 0.0:
            text = f"tl.where(mask, {text}, 0.0)"
        self.block.tail.append(f"{gradient} += {text}")
        loads = [
            "rows = (first + tl.arange(0, BLOCK_ROWS).to(tl.int64))[:, None]",
            f"{name} = tl.load({pointer}, mask=rows < n_rows, other=0)",
            f"row_mask = (rows < n_rows) & ({name} == own)",
            "mask = row_mask & col_mask",
            *self._offsets(),
            *self.block.lines(),
        ]
        return [
            "SEARCH_ROWS: tl.constexpr = 64 * BLOCK_ROWS",
            "row = tl.program_id(0)",
            "cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]",
            "col_mask = cols < n_cols",
            f"own = tl.load({name}_ptr + row)",
            "",
            "# The first row of an index adds up all its rows in their order: no atomics, the same bits each time.",
            "earlier = 0",
            "for start in range(0, row, SEARCH_ROWS):",
            *indented(_others(name, "row")),
            "    earlier += tl.sum(same.to(tl.int32))",
            f"if {self._is_first()}:",
            *indented(
                [
                    f"{gradient} = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)",
                    "for start in range(row, n_rows, SEARCH_ROWS):",
                    *indented(_others(name, "n_rows")),
                    "    if tl.sum(same.to(tl.int32)) > 0:",
                    "        for first in range(start, tl.minimum(start + SEARCH_ROWS, n_rows), BLOCK_ROWS):",
                    *indented(indented(indented(loads))),
                    f"total = tl.sum({gradient}, axis=0, keep_dims=True)",
                    f"tl.store({row}, total, mask=col_mask)",
                ]
            ),
        ]

    def _is_first(self) -> str:
        _, piece = Slice.counted(self.spec.stores[0].place.slices)
        return f"(earlier == 0) & (own != {piece.skip})" if piece.skip >= 0 else "earlier == 0"


def _others(index: str, end: str) -> list[str]:
    """The statements that look for rows of the own index among SEARCH_ROWS of those before `end`."""
    return [
        "others = start + tl.arange(0, SEARCH_ROWS)",
        f"same = (others < {end}) & (tl.load({index}_ptr + others, mask=others < {end}, other=0) == own)",
    ]
