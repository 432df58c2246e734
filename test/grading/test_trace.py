"""What the trace takes for computing with PyTorch, and what for the last step over what kernels wrote."""

import pytest
import torch

from liger_dev.grading.trace import Trace
from liger_dev.grading.trace import watched


def noted(function, *inputs):
    trace = Trace()
    with watched(trace, "forward"):
        function(*inputs)
    return [name for _, name in trace.aten]


def partial_sums():
    return torch.empty(4).sum()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, mask: partial_sums() / mask.sum(dtype=torch.float32).clamp_min(1.0),
        lambda x, mask: 1 - partial_sums(),
        lambda x, mask: torch.zeros_like(x).sum(0) if mask.any() else x.contiguous(),
        lambda x, mask: (mask.long() // 4 * mask).any(),
    ],
    ids=["a count", "a difference", "a look", "indices inside"],
)
def test_the_last_steps_are_no_computation(function):
    assert noted(function, torch.randn(3, 4), torch.tensor([True, False, True])) == []


@pytest.mark.parametrize(
    "function, name",
    [
        (lambda x, mask: x.sum(), "aten::sum"),
        (lambda x, mask: x * mask[:, None], "aten::mul"),
        (lambda x, mask: mask.long().cumsum(0), "aten::cumsum"),
        (lambda x, mask: partial_sums() * x, "aten::mul"),
        (lambda x, mask: torch.empty(4) * torch.empty(4), "aten::mul"),
    ],
)
def test_all_else_is(function, name):
    assert noted(function, torch.randn(3, 4), torch.tensor([True, False, True])) == [name]
