"""A planted bug of precision that the tests let through: none within half of the grader's bounds, a bug beyond."""

import pytest

from liger_dev.grading.children import draw
from liger_dev.grading.grade import chosen_cases
from liger_dev.grading.mutants import mutations
from liger_dev.grading.mutation import _OF_PRECISION
from liger_dev.grading.mutation import _judged_by_bounds
from liger_dev.grading.request import Request
from liger_dev.grading.verdict import Mutant
from liger_dev.records import Reference
from liger_dev.records import Tensor

pytest.importorskip("triton")

REFERENCE = "import torch\n\n\ndef soft_sign(x):\n    return x / (1.0 + x.abs())\n"
OP = """
import torch
import triton
import triton.language as tl


@triton.jit
def _forward_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        mask = start + offsets < n
        x = tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + start + offsets, x / (tl.abs(x) + 1.0), mask=mask)


@triton.jit
def _backward_kernel(dy_ptr, x_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for start in range(0, n, BLOCK):
        mask = start + offsets < n
        dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0).to(tl.float32)
        scale = 1.0 + tl.abs(tl.load(x_ptr + start + offsets, mask=mask, other=0.0).to(tl.float32))
        tl.store(dx_ptr + start + offsets, dy / (scale * scale), mask=mask)


class LigerSoftSignFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _forward_kernel[(1,)](x, y, x.numel(), BLOCK=1024)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        _backward_kernel[(1,)](dy.contiguous(), x, dx, x.numel(), BLOCK=1024)
        return dx
"""


@pytest.mark.parametrize("shift, outcome", [("", "excluded"), (" + 64.0 - 64.0", "survived")])
def test_fewer_digits_are_a_bug_where_eager_has_more(tmp_path, shift, outcome):
    """Eager's arithmetic is bfloat16 of a bfloat16 input, as the bug's is, unless that loses more on its way."""
    text = OP.replace("tl.abs(x) + 1.0", f"tl.abs(x){shift} + 1.0")
    op = tmp_path / "tree" / "kernels" / "ops" / "soft_sign.py"
    op.parent.mkdir(parents=True)
    op.write_text(text)
    request = Request(
        str(op),
        Reference("soft_sign", REFERENCE, (Tensor("x", ("B", "T", "H")),), (), "a test"),
        root=str(tmp_path / "tree"),
        tree=str(tmp_path / "tree"),
        scratch=str(tmp_path / "scratch"),
        cases=("prime columns",),
    )
    (tmp_path / "scratch").mkdir()
    every = mutations(text, "LigerSoftSignFunction")
    bug = next(m for m in every if m.operator == "arithmetic in the inputs' dtype" and m.kernel == "_forward_kernel")
    called, _ = draw(request, chosen_cases(request))
    survived = Mutant(bug.operator, bug.line, bug.change, "survived", "")
    judged = _judged_by_bounds(request, called, bug, survived)
    assert judged.outcome == outcome and ("half the error" in judged.note) == (outcome == "excluded")
    # A bug of another kind is one, whatever its error.
    assert (
        _judged_by_bounds(request, called, next(m for m in every if m.operator == "sign changed"), survived) is survived
    )


def test_what_is_judged_so_is_planted():
    sums = "total = tl.sum(x, axis=0).to(y_ptr.dtype.element_ty)"
    text = OP.replace("tl.store(y_ptr", f"{sums}\n        tl.store(y_ptr").replace("tl.abs(x) + 1.0", "total")
    assert {*_OF_PRECISION} <= {mutation.operator for mutation in mutations(text, "LigerSoftSignFunction")}
