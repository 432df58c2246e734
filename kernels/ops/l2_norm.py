"""Division by the Euclidean norm over the last dimension: y = x / sqrt(sum(x^2) + eps).

    y = x * inverse_norm, where inverse_norm = rsqrt(sum[H](x * x) + eps)
    dx = (dy - y * sum[H](dy * y)) * inverse_norm

Launch: a program holds BLOCK_ROWS whole rows.
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
def _l2_norm_forward_kernel(
    x_ptr,
    y_ptr,
    inverse_norm_ptr,
    n_rows,
    n_cols,
    eps: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    inverse_norm = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) + eps)
    y = x * inverse_norm

    tl.store(inverse_norm_ptr + rows, inverse_norm, mask=row_mask)
    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _l2_norm_backward_kernel(
    dy_ptr,
    x_ptr,
    inverse_norm_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    inverse_norm = tl.load(inverse_norm_ptr + rows, mask=row_mask, other=0.0)

    y = x * inverse_norm
    dot = tl.sum(dy * y, axis=1, keep_dims=True)
    dx = (dy - y * dot) * inverse_norm

    tl.store(dx_ptr + offsets, dx, mask=mask)


def l2_norm_forward(x, eps):
    """Returns y, x, inverse_norm."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x)
    x = x.contiguous()
    y = torch.empty_like(x)
    inverse_norm = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(x.device):
        _l2_norm_forward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
            x,
            y,
            inverse_norm,
            n_rows,
            n_cols,
            eps=eps,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return y, x, inverse_norm


def l2_norm_backward(dy, x, inverse_norm):
    """Returns dx."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(dy.device):
        _l2_norm_backward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
            dy, x, inverse_norm, dx, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    return dx


class LigerL2NormFunction(torch.autograd.Function):
    """y = l2_norm(x, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, eps):
        y, x, inverse_norm = l2_norm_forward(x, eps)
        ctx.save_for_backward(x, inverse_norm)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, inverse_norm = ctx.saved_tensors
        dx = l2_norm_backward(dy, x, inverse_norm)
        return dx, None
