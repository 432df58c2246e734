"""The builtin repairer's moves, each on an op file that needs it."""

import ast
import textwrap

import pytest

from liger_dev import repair as moves
from liger_dev.repair import Move
from liger_dev.repair import OpFile
from liger_dev.repair import repair

OP = textwrap.dedent('''
    """é: columns in bytes and in characters differ after this line's first letter."""

    BLOCK_SIZE = 1024


    @triton.jit
    def _kernel(x_ptr, ids_ptr, y_ptr, rstd_ptr, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
        rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        cols = tl.arange(0, BLOCK_COLS)[None, :]
        row_mask = rows < n_rows
        col_mask = cols < n_cols
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols
        total = tl.zeros((1, BLOCK_COLS), dtype=x_ptr.dtype.element_ty)
        x = tl.load(x_ptr + offsets)
        ids = tl.load(ids_ptr + rows, mask=row_mask)
        rstd = tl.load(rstd_ptr + rows)
        total += x
        tl.store(y_ptr + cols, total)
        tl.store(y_ptr + offsets, x * rstd, mask=mask)


    def launch(x, ids, é):
        rstd = torch.empty(3, dtype=torch.float32)
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(x.device):
            _kernel[(1,)](x, ids, y, rstd, 1, 1, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps)
        _kernel[(1,)](x, ids, y, rstd, 1, 1, BLOCK_ROWS=4, BLOCK_COLS=64, num_warps=8)
''')


def _made(move: Move, text: str = OP, integers: frozenset[str] = frozenset({"ids"})) -> list[str]:
    """The lines that a move adds."""
    op = OpFile(text, integers)
    after = op.apply(move.edit(op))
    ast.parse(after)
    old = text.splitlines()
    return [line.strip() for line in after.splitlines() if line not in old]


def test_one_row_sets_every_launch():
    launch = "_kernel[(1,)](x, ids, y, rstd, 1, 1, BLOCK_ROWS=1, BLOCK_COLS=64, num_warps=8)"
    assert _made(moves.ONE_ROW) == ["BLOCK_ROWS = 1", launch]


def test_float32_widens_floating_loads_and_accumulators_only():
    assert _made(moves.FLOAT32) == [
        "total = tl.zeros((1, BLOCK_COLS), dtype=tl.float32)",
        "x = tl.load(x_ptr + offsets).to(tl.float32)",
    ]


def test_mask_takes_the_mask_that_has_the_shape_of_the_pointers():
    assert _made(moves.MASK) == [
        "x = tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)",
        "tl.store(y_ptr + cols, total, mask=col_mask)",
    ]


def test_mask_is_not_added_where_none_is_in_scope():
    assert not any("col_mask" in line for line in _made(moves.MASK, OP.replace("    col_mask = cols < n_cols\n", "")))


def test_block_size_of_a_flat_kernel_is_changed_where_it_is_set():
    flat = "BLOCK_SIZE = 1024\n\n\ndef launch(x):\n    _kernel[(1,)](x, BLOCK_SIZE=BLOCK_SIZE)\n"
    assert _made(moves.ANOTHER_BLOCK, flat) == ["BLOCK_SIZE = 256"]


def test_block_size_of_rows_is_doubled():
    assert _made(moves.ANOTHER_BLOCK)[0] == "BLOCK_COLS *= 2"


@pytest.mark.parametrize(("move", "warps"), [(moves.FEWER_WARPS, "4"), (moves.MORE_WARPS, "16")])
def test_warps(move: Move, warps: str):
    settings, launch = _made(move)
    assert settings.startswith("num_warps = m")
    assert launch.endswith(f"num_warps={warps})")


@pytest.mark.parametrize("kind", sorted(kind for kind, row in moves.MOVES.items() if row))
def test_moves_end_and_none_is_made_twice(kind: str):
    text, tried = OP, set[str]()
    while made := repair(text, kind, tried):
        assert made.move not in tried
        assert made.text != text
        assert made.diff.startswith("--- ")
        text, tried = made.text, tried | {made.move}
    assert tried <= {move.name for move in moves.MOVES[kind]}
    assert tried


def test_a_move_that_changes_nothing_is_passed_over():
    sound = OP.replace("tl.load(x_ptr + offsets)", "tl.load(x_ptr + offsets).to(tl.float32)")
    sound = sound.replace("dtype=x_ptr.dtype.element_ty", "dtype=tl.float32")
    made = repair(sound, moves.DTYPE, set(), {"ids"})
    assert made is not None
    assert made.move == moves.ONE_ROW.name


def test_a_file_that_does_not_parse_gets_no_move():
    assert repair("def broken(:\n", moves.LOGIC, set()) is None


def test_every_reason_is_a_sentence_that_says_what_changes():
    for move in {move.name: move for row in moves.MOVES.values() for move in row}.values():
        assert ":" in move.reason
