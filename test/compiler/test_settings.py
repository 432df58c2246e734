"""What a wrapper tells the settings of its kernels: how often a looped one reads its row, how many tiles one loads."""

import pytest

from compiler_cases import catalogue
from compiler_cases import written

from liger_dev.compiler import compile_op


def settings(reference, kind):
    """The calls of one kind of settings, in order."""
    op = compile_op(reference, {}).op["op"]
    lines = [line.strip() for line in (*op["forward_body"], *op["backward_body"])]
    return [line.partition(" = ")[2] for line in lines if f"{kind}_settings(" in line]


@pytest.mark.parametrize(
    "name, calls",
    [
        ("softmax", ["(n_cols, light=True)", "(n_cols, tensors=2, num_warps=32)"]),
        ("log_softmax", ["(n_cols, light=True)", "(n_cols, tensors=2, num_warps=32)"]),
        ("cross_entropy", ["(n_cols, again=True)"]),  # it goes over the label's element once more
        ("logsumexp", ["(n_cols)"]),  # it reads the row once
        ("smoothed_cross_entropy", ["(n_cols)"]),  # another sum beside them
        ("temperature_softmax", ["(n_cols)", "(n_cols, tensors=2, num_warps=32)"]),  # more than the row itself
        ("distillation_loss", ["(n_cols, tensors=2, num_warps=16)"]),
        ("jsd", ["(n_cols, tensors=2)"]),
    ],
)
def test_long_blocks_are_for_rows_that_are_read_twice_and_nothing_else(name, calls):
    assert settings(catalogue(name), "loop") == [f"loop_settings{call}" for call in calls]


def test_many_tiles_take_fewer_elements_a_thread():
    assert settings(catalogue("rope"), "row") == 4 * ["row_settings(n_cols, tiles=6)"]
    assert settings(catalogue("shift_gate"), "row")[0] == "row_settings(min(n_cols, PIECE_COLS))"


@pytest.mark.parametrize(
    "body, dtypes",
    [
        ("return x * weight + bias", "weight.dtype if needs_dweight else None, bias_dtype if needs_dbias else None"),
        ("return (x + bias) * weight", "weight.dtype if needs_dweight else None, bias.dtype if needs_dbias else None"),
    ],
)
def test_sums_for_each_column_are_added_up_together(body, dtypes):
    reference = written(
        "x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor", body, x=("B", "H"), weight=("H",), bias=("H",)
    )
    text = "\n".join(compile_op(reference, {}).op["op"]["backward_body"])
    assert f"sum_each(partials, {dtypes})" in text
    assert "partials = torch.empty((2, n_programs, n_cols)" in text and "sum_partials(" not in text
