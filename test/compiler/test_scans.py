"""Running sums in rows of any length: each pass goes through the blocks in the order of the sum."""

import pytest

from compiler_cases import written

from liger_dev.compiler import compile_op

BACKWARDS = "for start in range((n_cols - 1) // BLOCK_COLS * BLOCK_COLS, -1, -BLOCK_COLS):"
FORWARDS = "for start in range(0, n_cols, BLOCK_COLS):"


def loops(body):
    """The loops of each looped kernel, by its name."""
    op = compile_op(written("x: torch.Tensor", body, x=("B", "V")), {}).op["op"]
    looped = {kernel["name"]: kernel["lines"] for kernel in op["kernels"] if "looped" in kernel["name"]}
    return {name: [line for line in lines if line.startswith("for ")] for name, lines in looped.items()}


def test_a_running_sum_goes_on_from_block_to_block():
    found = loops("y = x.cumsum(-1)\nreturn y")
    assert found == {"_op_forward_looped_kernel": [FORWARDS], "_op_backward_looped_kernel": [BACKWARDS]}


@pytest.mark.parametrize("flip, order", [("", FORWARDS), (".flip(-1)", BACKWARDS)])
def test_later_passes_keep_the_order(flip, order):
    body = f"c = x{flip}.cumsum(-1){flip}\ny = c / c.abs().sum(-1, keepdim=True)\nreturn y"
    assert loops(body)["_op_forward_looped_kernel"] == [order, order]


def test_sums_in_both_directions_need_the_whole_row():
    assert loops("y = x.cumsum(-1) * x.flip(-1).cumsum(-1).flip(-1)\nreturn y") == {}
