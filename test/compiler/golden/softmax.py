"""Softmax over the last dimension: y = exp(x - max(x)) / sum(exp(x - max(x))).

    y = numerator / denominator, where numerator = exp(shifted), denominator = sum[V](numerator), shifted = x -
        row_max, row_max = max[V](x)
    dx = y * (dy - sum[V](dy * y))

Launch: a program holds BLOCK_ROWS whole rows.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_HELD_ROW
from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import device_guard
from kernels.ops.utils import exp_or_zero
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape


@triton.jit
def _softmax_forward_kernel(
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

    x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf")).to(tl.float32)

    row_max = tl.max(x, axis=1, keep_dims=True)
    shifted = x - row_max
    numerator = exp_or_zero(shifted)
    denominator = tl.sum(numerator, axis=1, keep_dims=True)
    y = numerator / denominator

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _softmax_forward_looped_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    row_max = tl.full((BLOCK_ROWS, 1), float("-inf"), dtype=tl.float32)
    denominator = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)

        new_max = tl.maximum(row_max, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # no NaN while all is -inf
        denominator = denominator * exp_or_zero(row_max - shift)
        denominator += tl.sum(exp_or_zero(x - shift), axis=1, keep_dims=True)
        row_max = new_max

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)

        shifted = x - row_max
        numerator = exp_or_zero(shifted)
        y = numerator / denominator

        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")


@triton.jit
def _softmax_backward_kernel(
    dy_ptr,
    y_ptr,
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

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    dot = tl.sum(dy * y, axis=1, keep_dims=True)
    # From the cache again, rather than held.
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    dx = y * (dy - dot)

    tl.store(dx_ptr + offsets, dx, mask=mask)


@triton.jit
def _softmax_backward_looped_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        dot += tl.sum(dy * y, axis=1, keep_dims=True)

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)

        dx = y * (dy - dot)

        tl.store(dx_ptr + offsets, dx, mask=mask, eviction_policy="evict_first")


def softmax_forward(x):
    """Returns y."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x)
    x = x.contiguous()
    y = torch.empty_like(x)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(x.device):
            _softmax_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, light=True)
        with device_guard(x.device):
            _softmax_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    return y


def softmax_backward(dy, y):
    """Returns dx."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(y)
    if n_cols <= LONG_HELD_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, again=True)
        with device_guard(dy.device):
            _softmax_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy, y, dx, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2, num_warps=32)
        with device_guard(dy.device):
            _softmax_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy, y, dx, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    return dx


class LigerSoftmaxFunction(torch.autograd.Function):
    """y = softmax(x)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, V).

    Returns:
        y: (B, T, V).
    """

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = softmax_backward(dy, y)
        return dx
