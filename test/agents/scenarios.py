"""An operation in words that the compiler can't express, `index_copy`, and what a scripted model says about it: right, wrong and hostile."""

NAME = "mirror_add"
PROSE = "Add to every row its own mirror image: y_i = x_i + x_(n-1-i), where n is the length of a row."

REFERENCE = '''"""Adds to each row its mirror image: y[i] = x[i] + x[n - 1 - i]."""

import torch

SHAPES = {"x": ("B", "T", "H")}


def mirror_add(x: torch.Tensor) -> torch.Tensor:
    backwards = torch.arange(x.shape[-1] - 1, -1, -1, device=x.device)
    return x + torch.zeros_like(x).index_copy(-1, backwards, x)
'''

FACTS = {
    "tier": 2,
    "forward_computation": "y[i] = x[i] + x[n - 1 - i]",
    "precision_sensitive_ops": [],
    "backward_saved_tensors": [],
    "backward_recompute": [],
    "gradient_formulas": [{"tensor": "x", "expression": "dy + torch.flip(dy, dims=(-1,))"}],
    "grid_forward": "(cdiv(n_rows, BLOCK_ROWS),)",
    "grid_backward": "(cdiv(n_rows, BLOCK_ROWS),)",
    "grid_description": "a program holds BLOCK_ROWS whole rows",
    "block_size_source": "next_power_of_2(n_cols)",
    "needs_sm_parallelism": False,
}

OP = '''"""Adds to each row its mirror image.

    y[i] = x[i] + x[n - 1 - i]
    dx[i] = dy[i] + dy[n - 1 - i]

Launch: a program holds BLOCK_ROWS whole rows, forward and backward alike.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import check_floating
from kernels.ops.utils import device_guard
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape


@triton.jit
def _mirror_add_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    mirrored = tl.load(x_ptr + rows * n_cols + (n_cols - 1 - cols), mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + rows * n_cols + cols, x + mirrored, mask=mask)


def _launch(x):
    n_rows, n_cols = row_shape(x)
    x = x.contiguous()
    y = torch.empty_like(x)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(x.device):
        _mirror_add_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
            x,
            y,
            n_rows,
            n_cols,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return y


def mirror_add_forward(x):
    """Returns y."""
    check_floating(x=x)
    return _launch(x)


def mirror_add_backward(dy):
    """Returns dx: the operation is its own adjoint."""
    return _launch(dy)


class LigerMirrorAddFunction(torch.autograd.Function):
    """y = mirror_add(x), for x of shape (B, T, H) in float32, bfloat16 or float16."""

    @staticmethod
    def forward(ctx, x):
        return mirror_add_forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return mirror_add_backward(dy) if ctx.needs_input_grad[0] else None
'''

WRONG_OP = OP.replace("(n_cols - 1 - cols)", "(n_cols - cols)")
OP_PATH = f"kernels/ops/{NAME}.py"
TEST_PATH = f"test/kernels/test_{NAME}.py"
