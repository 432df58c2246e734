"""A looped KernelSpec in, its lines out: rows in blocks of columns, in as many passes as its reductions need."""

import math
import re

from dataclasses import replace

from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import SCANS
from liger_dev.compiler.naming import unique
from liger_dev.compiler.needs import FILL
from liger_dev.compiler.passes import Pass
from liger_dev.compiler.passes import arrange
from liger_dev.compiler.schedule import Store
from liger_dev.compiler.statements import Block
from liger_dev.compiler.statements import Statements
from liger_dev.compiler.statements import fill_text
from liger_dev.compiler.statements import indented
from liger_dev.compiler.statements import inside_row


class LoopedRows(Statements):
    """Programs that go through their rows block by block."""

    row_mask = "rows < n_rows"
    col_mask = "cols < n_cols"
    backwards = False
    apart = False

    def lines(self) -> list[str]:
        passes, after = arrange(self.graph, self.spec, self.values, self.singles)
        self.apart = len(passes) == 1 and _only_sums(passes[0])
        self.again, self.light = self._read_twice(passes)
        lines = [
            "rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]",
            f"row_mask = {self.row_mask}",
        ]
        for value in self.spec.loads:
            if value in self.uses and self.kind(value) in ("row", "scalar"):
                self.bind(value)
        lines += [line for line in self._drain() if line]
        for i, one in enumerate(passes):
            guard = "" if any(p.reductions or p.online for p in passes[i:]) else _guard(one)
            if guard:  # nothing more is reduced: all row values are known
                lines += self._row_stores(after)
                after = []
            self._plan_cache(passes[:i], one, passes[i + 1 :])
            lines += self._pass(one, guard)
        return lines + self._row_stores(after)

    def _read_twice(self, passes: list[Pass]) -> tuple[bool, bool]:
        """Whether a row is read for its maximum and its sum of exponentials, then once more, and nothing beside it; and
        whether no more is then made of it than one tensor, so that registers are left for longer blocks."""
        if len(passes) != 2:
            return False, False
        first, second = passes
        again = (
            len(first.online) == 1
            and not (*first.reductions, *second.reductions)
            and len(first.loads | second.loads) == 1
            and first.online[0][0].args[0] in first.loads
        )
        return again, again and not self.spec.corrections

    def _row_stores(self, stores: list[Store]) -> list[str]:
        for store in stores:
            self._bind_in_order([store.value])
            self._store(store)
        lines = self._drain()
        return ["", *[line for line in lines if line]] if lines else []

    def _plan_cache(self, before: list[Pass], one: Pass, after: list[Pass]) -> None:
        """What another pass reads again should stay in the cache, at the cost of what nobody reads any more.

        Cross entropy and its gradient, 8192 rows of 32000 columns on an H200: 0.313 ms, without hints 0.350.
        """
        tiles = [v for v in one.loads if self.read_once(v)]
        self.at_once, self.online = max(self.at_once, len(tiles)), self.online or bool(one.online)
        earlier, later = ({v for p in passes for v in p.loads} for passes in (before, after))
        self.evictions = {v: "evict_last" if v in later else "evict_first" for v in tiles if v in earlier | later}
        if not any(self.kind(v) == "tile" and v not in tiles for v in one.loads):
            self.holds = max(self.holds, len(later.intersection(tiles)))
        self.last_use = bool(tiles) and not later.intersection(tiles) and bool(earlier.intersection(tiles))
        ordered = any(v.op in (*SCANS, "argmax") for v in (*one.needs, *one.reductions))
        self.backwards = len(before) % 2 == 1 and bool(earlier.intersection(tiles)) and not ordered

    def _drain(self) -> list[str]:
        """The statements gathered so far; a new block begins, and addresses are made anew in it."""
        lines, self.block = self.block.lines(), Block()
        return lines

    def _pass(self, one: Pass, guard: str) -> list[str]:
        """One loop over a row's blocks of columns, if `guard` holds, and the row values that are known after it."""
        known = dict(self.speller.bound)
        before = self._row_values([*one.needs])
        bound, shared = dict(self.speller.bound), dict(self.shared)
        starts = [line for value in one.reductions for line in self._start(value)]
        starts += self._start_pairs(one)
        scans = [v for v in self.values if v in one.needs and v.op in SCANS and v not in self.spec.loads]
        starts += [f"{self._carry(value)} = {_zeros(value.op)}" for value in scans]
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
        for first, second in one.online:
            self._continue_pair(first, second)
        for value in one.reductions:
            self._continue(value)
        for store in one.stores:
            self._store(replace(store, guard="") if store.guard == guard else store)
        body = self._loop_head() + self._drain()
        self.speller.bound, self.shared = bound, shared
        for value in (*one.reductions, *(v for pair in one.online for v in pair)):
            self.speller.bound[value] = self.name_of(value)
        after = [*self._totals(one), *self._corrections(one, guard)]
        loop = [_loop(scans)]
        if self.apart:
            return [*before, "", *starts, *self._in_stretches(one, body)]
        if self.backwards:
            loop = [
                "# Backwards, since the last block is the likeliest to be in the cache.",
                "n_blocks = tl.cdiv(n_cols, BLOCK_COLS)",
                "for block in range(n_blocks):",
            ]
        self.evictions, self.last_use, self.backwards = {}, False, False
        if guard:
            self.speller.bound = known
            return ["", f"if {guard}:", *indented([*before, *starts, *loop, *indented(body), *after])]
        return [*before, "", *starts, *loop, *indented(body), *after]

    def _corrections(self, one: Pass, guard: str) -> list[str]:
        """The stores of single elements that follow a pass, once all threads have stored what they hold of the row."""
        lines: list[str] = []
        for correction in (c for c in self.spec.corrections if c.store in one.stores):
            self.bind(correction.position)
            at, name = self.speller.text(correction.position), correction.store.place.name
            self.names.setdefault(correction.value, unique(f"{name}_at_{at}", {*self.taken, *self.names.values()}))
            self._bind_in_order([correction.value])
            pointer = f"{name}_ptr + rows * n_cols + {at}"
            line = f"tl.store({pointer}, {self.speller.text(correction.value)}, mask={inside_row(at)})"
            self._guarded(correction.store.guard if correction.store.guard != guard else "", line)
            lines += ["", f"# The element at {at} once more, after all others.", "tl.debug_barrier()"]
            lines += [line for line in self._drain() if line]
        return lines

    def _carry(self, scan: Value) -> str:
        return f"{self.name_of(scan)}_before"

    def bind(self, value: Value) -> None:
        """A scan goes on from what the blocks before this one gave."""
        fresh = value.op in SCANS and value not in self.spec.loads and value not in self.speller.bound
        super().bind(value)
        if fresh:
            total = f"tl.sum({self.padded(value)}, axis=1, keep_dims=True)"
            self.block.body.append(f"{self._carry(value)} += {total}")

    def reduction(self, value: Value) -> str:
        text = super().reduction(value)
        return f"{self._carry(value)} + {text}" if value.op in SCANS else text

    def _loop_head(self) -> list[str]:
        text = "\n".join(self.block.all())
        first = "(n_blocks - 1 - block) * BLOCK_COLS" if self.backwards else "start"
        head = [f"cols = ({first} + tl.arange(0, BLOCK_COLS))[None, :]"]
        if "col_mask" in text:
            head.append(f"col_mask = {self.col_mask}")
        if re.search(r"\bmask\b(?!=)", text):
            head.append(f"mask = row_mask & {'col_mask' if 'col_mask' in text else f'({self.col_mask})'}")
        return head + self._offsets()

    def _row_values(self, needed: list[Value]) -> list[str]:
        """Row values that a pass needs, computed before it."""
        for value in self.values:
            ready = value in needed and value in self.named and value not in self.speller.bound
            if ready and self.kind(value) in ("row", "scalar"):
                self.bind(value)
        return [line for line in self._drain() if line]

    def _start(self, value: Value) -> list[str]:
        name = self.name_of(value)
        if value.op == "argmax":
            start = [f"{name} = tl.zeros((BLOCK_ROWS, 1), dtype=tl.int32)"]
            return [*start, f"{name}_value = {_zeros('max')}"]
        return [f"{name} = {_zeros(value.op)}"]

    def _start_pairs(self, one: Pass) -> list[str]:
        starts = [f"{self.name_of(peak)} = {_zeros('max')}" for peak, _ in one.online]
        return starts + [f"{self.name_of(total)} = {_zeros('sum')}" for _, total in one.online]

    def _totals(self, one: Pass) -> list[str]:
        """What gives a row's reductions once its last block is done."""
        return []

    def _in_stretches(self, one: Pass, body: list[str]) -> list[str]:
        """A loop over sums alone: in a stretch of blocks each lane adds up its own columns, then the row its lanes."""
        names = [self.name_of(value) for value in one.reductions]
        return [
            "for stretch in range(0, n_cols, 32 * BLOCK_COLS):",
            *(f"    {name}_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)" for name in names),
            "    for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):",
            *indented(indented(body)),
            *(f"    {name} += tl.sum({name}_lanes, axis=1, keep_dims=True)" for name in names),
        ]

    def _continue(self, value: Value) -> None:
        name, inner = self.name_of(value), self.padded(value)
        if value.op == "argmax":
            self.block.body += [
                f"block_max = tl.max({inner}, axis=1, keep_dims=True)",
                f"block_position = start + tl.argmax({inner}, axis=1, keep_dims=True)",
                f"{name} = tl.where(block_max > {name}_value, block_position, {name})",
                f"{name}_value = tl.maximum({name}_value, block_max)",
            ]
            return
        if self.apart:
            self.block.body.append(f"{name}_lanes += {inner}")
            return
        reduced = f"tl.{value.op}({inner}, axis=1, keep_dims=True)"
        step = f"{name} += {reduced}" if value.op == "sum" else f"{name} = tl.{value.op}imum({name}, {reduced})"
        if self.propagates(value):
            step = f"{name} = larger_or_nan({name}, tl.reduce({inner}, 1, larger_or_nan, keep_dims=True))"
        self.block.body.append(step)

    def _continue_pair(self, first: Value, second: Value) -> None:
        """Maximum and sum of exponentials in one pass: the sum so far is rescaled when the maximum grows."""
        peak, total = first, second
        high, sum_ = self.name_of(peak), self.name_of(total)
        x = self.speller.text(peak.args[0])
        lane = self.lanes.of(peak.args[0])
        inner = x if lane == -math.inf else f'tl.where(mask, {x}, float("-inf"))'
        new_max, shift = (unique(name, {*self.names.values(), *self.taken}) for name in ("new_max", "shift"))
        shifted_by = f'tl.where({new_max} == float("-inf"), 0.0, {new_max})  # no NaN while all is -inf'
        if total.args[0].args[0].args[1] is not peak:
            shifted_by = f'tl.where(tl.abs({new_max}) == float("inf"), 0.0, {new_max})  # inf - inf is NaN'
        self.block.body += [
            f"{new_max} = tl.maximum({high}, tl.max({inner}, axis=1, keep_dims=True))",
            f"{shift} = {shifted_by}",
            f"{sum_} = {sum_} * exp_or_zero({high} - {shift})",
            f"{sum_} += tl.sum(exp_or_zero({inner} - {shift}), axis=1, keep_dims=True)",
            f"{high} = {new_max}",
        ]


def _loop(scans: list[Value]) -> str:
    """Blocks in the order in which a scan goes through them."""
    if any(value.attr("reverse") for value in scans):
        return "for start in range((n_cols - 1) // BLOCK_COLS * BLOCK_COLS, -1, -BLOCK_COLS):"
    return "for start in range(0, n_cols, BLOCK_COLS):"


def _guard(one: Pass) -> str:
    """The condition for a pass that does nothing but store gradients."""
    guards = dict.fromkeys(store.guard for store in one.stores)
    return " or ".join(guards) if all(guards) else ""


def _only_sums(one: Pass) -> bool:
    """Whether a pass keeps no more than two sums: they may be long, and lose digits if one number takes block by block,
    or if each lane takes thousands."""
    sums = all(value.op == "sum" for value in one.reductions)
    return sums and 0 < len(one.reductions) <= 2 and not one.online and not one.stores


def _zeros(op: str) -> str:
    if op in ("sum", "cumsum"):
        return "tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)"
    return f"tl.full((BLOCK_ROWS, 1), {fill_text(FILL[op])}, dtype=tl.float32)"
