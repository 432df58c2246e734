"""A wide KernelSpec in, its lines out: rows in blocks of columns, of which each lane adds up its own."""

from liger_dev.compiler.emit_looped import LoopedRows
from liger_dev.compiler.ir import Value
from liger_dev.compiler.naming import unique
from liger_dev.compiler.passes import Pass

_LANES = "tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)"


class WideRows(LoopedRows):
    """Programs that go through wide rows twice: for their sums, then for what they store.

    Compiled for one number of columns: it knows how many blocks there are, and whether they are full, and then needs no
    masks. LayerNorm of 8192 rows of 16384 bfloat16 on an H200: 0.131 ms, held by a program 0.141; RMSNorm 0.130 and 0.134.
    Of 12288 columns 0.099 and 0.124, 0.098 and 0.111; of 9000, which are no multiple of 16, all that a kernel is told of
    other numbers, 0.094 and 0.304, 0.075 and 0.239.
    """

    row_mask = "(rows < n_rows) | (BLOCK_ROWS == 1)"
    col_mask = "(cols < n_cols) | (n_cols % BLOCK_COLS == 0)"

    def _plan_cache(self, before: list[Pass], one: Pass, after: list[Pass]) -> None:
        """What rows share should stay in the cache, too."""
        super()._plan_cache(before, one, after)
        self.evictions |= {v: "evict_last" for v in one.loads if not self.read_once(v)}
        self.backwards = False

    def _start(self, value: Value) -> list[str]:
        return [f"{self.name_of(value)}_lanes = {_LANES}"]

    def _continue(self, value: Value) -> None:
        self.block.body.append(f"{self.name_of(value)}_lanes += {self.padded(value)}")

    def _start_pairs(self, one: Pass) -> list[str]:
        return [
            f"{lanes} = {_LANES}"
            for total, squares in one.online
            for lanes in (self._own("lane_means"), f"{self.name_of(squares)}_lanes")
        ]

    def _continue_pair(self, first: Value, second: Value) -> None:
        """Mean and sum of squared differences of what a lane has seen, by Welford's recurrence."""
        means, apart, x = self._own("lane_means"), self._own("apart"), self.speller.text(first.args[0])
        self.block.body += [
            f"{apart} = tl.where(mask, {x} - {means}, 0.0)",
            f"{means} += {apart} * (BLOCK_COLS / (start + BLOCK_COLS))",
            # Not the square first, which may be too large: it counts for nothing in the first block.
            f"{self.name_of(second)}_lanes += {apart} * ({apart} * (start / (start + BLOCK_COLS)))",
        ]

    def _totals(self, one: Pass) -> list[str]:
        """The row's sums from those of its lanes; of squared differences by Chan's rule."""
        lines = [f"{n} = tl.sum({n}_lanes, axis=1, keep_dims=True)" for n in map(self.name_of, one.reductions)]
        seen, apart = self._own("seen"), self._own("apart")
        if one.online:
            lines.append(f"{seen} = tl.cdiv(n_cols - tl.arange(0, BLOCK_COLS), BLOCK_COLS)[None, :]  # by each lane")
        for total, squares in one.online:
            means, sum_, lanes = self._own("lane_means"), self.name_of(total), f"{self.name_of(squares)}_lanes"
            lines += [
                f"{sum_} = tl.sum({means} * {seen}, axis=1, keep_dims=True)",
                f"{apart} = {means} - {sum_} / n_cols",
                f"{self.name_of(squares)} = tl.sum({lanes} + {apart} * {apart} * {seen}, axis=1, keep_dims=True)",
            ]
        return lines

    def _own(self, name: str) -> str:
        """A name for what is no value of the graph."""
        return unique(name, {*self.names.values(), *self.taken})
