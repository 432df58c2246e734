"""Rows of a table by an index: what is read, what each row gives back, and what is refused."""

import pytest

from compiler_cases import written

from liger_dev.compiler import compile_op
from liger_dev.errors import LigerDevError

SHAPES = {"weight": ("V", "H"), "index": ("B", "T")}
BEFORE = 'DTYPES = {"index": "int"}\nRANGES = {"index": "V"}\n\n\n'


def compiled(body, signature="weight, index", **more):
    return compile_op(written(signature, body, BEFORE, **SHAPES, **more), {}).op["op"]


def lines(op, kernel):
    return "\n".join(next(k["lines"] for k in op["kernels"] if k["name"] == kernel))


def test_a_row_is_read_where_its_index_says():
    op = compiled("e = weight[index]\nreturn torch.tanh(e)")
    assert "weight_ptr + index.to(tl.int64) * n_cols + cols" in lines(op, "_op_forward_kernel")
    assert "y = tanh(e)" in op["formulas"] and "e = weight[index]" in op["formulas"]


def test_rows_are_added_up_without_atomics():
    text = lines(compiled("return F.embedding(index, weight)"), "_op_dweight_kernel")
    assert "if earlier == 0:" in text and "tl.atomic" not in text


def test_the_padding_row_gets_nothing():
    text = lines(compiled("return F.embedding(index, weight, padding_idx=0)"), "_op_dweight_kernel")
    assert "if (earlier == 0) & (own != 0):" in text


def test_rows_that_need_a_reduction_are_kept_first():
    op = compiled("e = weight[index]\nreturn e / e.abs().sum(-1, keepdim=True)")
    assert "dweight_rows_ptr" in lines(op, "_op_backward_kernel")
    assert "dweight_rows_ptr" in lines(op, "_op_dweight_kernel")


@pytest.mark.parametrize(
    "body, reason",
    [
        ("return weight[index] * weight.sum()", "weight is read by an index and in other ways"),
        ("return (2 * weight)[index]", "it picks rows of what is no input"),
        ("return weight[index.clamp(0, 1)]", "it picks rows by an index that is no input"),
        ("return weight[:, index]", "it picks by several indices, or along other dimensions"),
        ("return F.embedding(index, weight, scale_grad_by_freq=True)", "its gradient is sparse or scaled by frequency"),
    ],
)
def test_refusals_name_the_operation(body, reason):
    with pytest.raises(LigerDevError) as caught:
        compiled(body)
    assert reason in caught.value.what
