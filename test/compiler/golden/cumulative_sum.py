"""Running sum along the last dimension: y[i] = x[0] + ... + x[i].

    y = cumsum[H](x)
    dx = reverse_cumsum[H](dy)

Launch: a program holds BLOCK_ROWS whole rows.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape


@triton.jit
def _cumulative_sum_forward_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    offsets = rows * n_cols + cols

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    y = tl.cumsum(x, axis=1)

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _cumulative_sum_forward_looped_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    y_before = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

        y = y_before + tl.cumsum(x, axis=1)
        y_before += tl.sum(x, axis=1, keep_dims=True)

        tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _cumulative_sum_backward_kernel(
    dy_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    offsets = rows * n_cols + cols

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    dx = tl.cumsum(dy, axis=1, reverse=True)

    tl.store(dx_ptr + offsets, dx, mask=mask)


@triton.jit
def _cumulative_sum_backward_looped_kernel(
    dy_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dx_before = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range((n_cols - 1) // BLOCK_COLS * BLOCK_COLS, -1, -BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

        dx = dx_before + tl.cumsum(dy, axis=1, reverse=True)
        dx_before += tl.sum(dy, axis=1, keep_dims=True)

        tl.store(dx_ptr + offsets, dx, mask=mask)


def cumulative_sum_forward(x):
    """Returns y."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x)
    x = x.contiguous()
    y = torch.empty_like(x)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(x.device):
            _cumulative_sum_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(x.device):
            _cumulative_sum_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    return y


def cumulative_sum_backward(dy):
    """Returns dx."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(dy)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(dy.device):
            _cumulative_sum_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy, dx, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(dy.device):
            _cumulative_sum_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy, dx, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    return dx


class LigerCumulativeSumFunction(torch.autograd.Function):
    """y = cumulative_sum(x)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x):
        y = cumulative_sum_forward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        dx = cumulative_sum_backward(dy)
        return dx
