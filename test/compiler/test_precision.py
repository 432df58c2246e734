"""How precisely a value is spelled: fast exponentials and quotients where their error can't show, exact ones elsewhere."""

import pytest

from compiler_cases import catalogue
from compiler_cases import written

from liger_dev.compiler import compile_op


def kernels(reference):
    """The text of all kernels."""
    return "\n".join(line for kernel in compile_op(reference, {}).op["op"]["kernels"] for line in kernel["lines"])


@pytest.mark.parametrize(
    "body, unfused",
    [
        ("return torch.softmax(x * 0.3, -1)", True),
        ("return torch.softmax((x + x.abs()) / 0.7, -1)", True),
        ("return torch.softmax(torch.where(x > 0, x * 0.3 + 1.0, -1.0), -1)", True),
        ("return torch.softmax(x, -1)", False),
        ("return torch.log_softmax(x.abs(), -1)", False),
        ("return x * 0.3 - x.mean(-1, keepdim=True)", False),
    ],
)
def test_products_are_not_fused_where_their_maximum_is_taken_off_again(body, unfused):
    op = compile_op(written("x: torch.Tensor", body, x=("B", "H")), {}).op["op"]
    assert ("enable_fp_fusion=False" in str(op["forward_body"])) == unfused
    assert ("enable_fp_fusion=False" in str(op["backward_body"])) == (unfused and "row_max" in str(op["backward_body"]))


@pytest.mark.parametrize(
    "body, spelled",
    [
        ("return torch.softmax(x, -1)", "exp_or_zero("),
        ("return (torch.log_softmax(x, -1).exp() * x).sum(-1)", "exp_or_zero("),
        ("return torch.log(torch.softmax(x, -1) + 1e-30)", "tl.exp("),
        ("return torch.exp(x - x.amax(-1, keepdim=True)).log2()", "tl.exp("),
        ("return 1.0 / torch.softmax(x, -1)", "tl.exp("),
        ("return torch.exp(-x * x)", "tl.exp("),
        ("return torch.exp(-0.5 * x.square() - x.abs())", "tl.exp("),
        ("return torch.exp(x - torch.maximum(x, x.amax(-1, keepdim=True)))", "tl.exp("),
        ("return torch.exp(x.clamp(max=0.0))", "tl.exp("),
        ("return torch.exp(x)", "libdevice.exp("),
        ("return torch.exp(-x)", "libdevice.exp("),
        ("return torch.exp(x - x.mean(-1, keepdim=True))", "libdevice.exp("),
        ("return torch.exp(x - x.amin(-1, keepdim=True))", "libdevice.exp("),
        ("return torch.exp(x.abs() - 1.0)", "libdevice.exp("),
    ],
)
def test_an_exponential_is_fast_where_its_argument_is_at_most_zero(body, spelled):
    text = kernels(written("x: torch.Tensor", body, x=("B", "H")))
    assert [one for one in ("exp_or_zero(", "tl.exp(", "libdevice.exp(") if one in text] == [spelled]


def test_the_mean_below_a_standard_deviation_is_exact():
    body = "return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-4)"
    assert "mean = tl.div_rn(" in kernels(written("x: torch.Tensor", body, x=("B", "H")))
    assert "div_rn" not in kernels(catalogue("layer_norm"))


def test_a_difference_to_a_logsumexp_keeps_its_infinities():
    text = kernels(catalogue("token_cross_entropy"))
    assert 'row_shift = tl.where(tl.abs(row_max) == float("inf"), 0.0, row_max)' in text
    assert "tl.log(denominator) - (picked - row_shift)" in text


def test_long_sums_are_taken_in_stretches():
    text = kernels(catalogue("group_norm"))
    assert "dbias_lanes += dy" in text and "dbias += tl.sum(dbias_lanes, axis=1, keep_dims=True)" in text


def test_rows_of_a_step_have_sums_of_their_own():
    text = kernels(catalogue("layer_norm"))
    assert "dbias += dy" in text and "tl.sum(dbias, axis=0, keep_dims=True)" in text


def test_shares_beside_a_gradient_of_their_maximum_are_exact():
    assert "y = tl.div_rn(numerator, denominator)" in kernels(catalogue("softmax_plus_one"))
    assert "div_rn" not in kernels(catalogue("softmax"))


def test_a_rounded_output_is_not_saved_for_wider_gradients():
    """The gradient of a float32 `noise` would have no more digits than the bfloat16 output."""
    saved = compile_op(catalogue("gumbel_softmax"), {}).profile["backward_saved_tensors"]
    assert "y" not in saved and {"x", "noise", "row_max", "denominator"} == set(saved)


@pytest.mark.parametrize("name", ["causal_softmax", "temperature_softmax"])
def test_an_output_that_is_cast_down_is_not_saved(name):
    """Where a row's largest share is nearly 1, its gradient is made of digits that a float16 output has lost."""
    saved = compile_op(catalogue(name), {}).profile["backward_saved_tensors"]
    assert {"x", "row_max", "denominator"} == set(saved)
    assert compile_op(catalogue("softmax"), {}).profile["backward_saved_tensors"] == ["y"]


def test_an_optional_input_widens_the_output_where_it_is_given():
    body = "if residual is not None:\n    x = x + residual\nreturn x * 2"
    signature = "x: torch.Tensor, residual: torch.Tensor | None = None"
    op = compile_op(written(signature, body, x=("B", "H"), residual=("B", "H")), {}).op["op"]
    dtype = "torch.promote_types(x.dtype, residual.dtype) if residual is not None else x.dtype"
    assert f"dtype={dtype}" in " ".join(str(op["forward_body"]).split())


@pytest.mark.parametrize(
    "body, spelled",
    [
        ("return cap * torch.tanh(x / cap)", "libdevice.tanh("),
        ("return torch.tanh(x * cap)", "branchless_tanh("),
        ("return torch.tanh(x / (x.abs() + cap))", "branchless_tanh("),
    ],
)
def test_the_tanh_of_a_soft_cap_is_libdevices(body, spelled):
    text = kernels(written("x: torch.Tensor, cap: float = 30.0", body, x=("B", "H")))
    assert [one for one in ("branchless_tanh(", "libdevice.tanh(") if one in text] == [spelled]
