"""Sparsemax, the nearest distribution to a row: y = max(x - threshold, 0), with threshold so that y sums to 1.

    y = max(centered - threshold, 0), where centered = x - row_max, threshold = simplex_threshold[V](centered,
        total=1), row_max = max[V](x)
    dx = where(centered - threshold >= 0, dy, 0) + where(centered > threshold, -(sum[V](where(centered - threshold
        >= 0, dy, 0)) / sum[V](where(centered > threshold, 1, 0))), 0)

Launch: a program holds BLOCK_ROWS whole rows.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_HELD_ROW
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import device_guard
from kernels.ops.utils import larger_or_nan
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape


@triton.jit
def _sparsemax_forward_kernel(
    x_ptr,
    y_ptr,
    row_max_ptr,
    threshold_ptr,
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

    x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf")).to(tl.float32)

    row_max = tl.reduce(x, 1, larger_or_nan, keep_dims=True)
    centered = x - row_max
    # threshold rises from below until the elements above it exceed it by 1 in all.
    threshold = tl.max(centered, axis=1, keep_dims=True) - 1.0
    n_rising = 1
    while n_rising > 0:
        above = centered > threshold
        n_above = tl.sum(above.to(tl.float32), axis=1, keep_dims=True)
        raised = (tl.sum(tl.where(above, centered, 0.0), axis=1, keep_dims=True) - 1.0) / n_above
        n_rising = tl.sum((raised > threshold).to(tl.int32))
        threshold = tl.where(raised > threshold, raised, threshold)
    difference = centered - threshold
    y = tl.where(difference < 0.0, 0.0, difference)

    tl.store(row_max_ptr + rows, row_max, mask=row_mask)
    tl.store(threshold_ptr + rows, threshold, mask=row_mask)
    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _sparsemax_backward_kernel(
    dy_ptr,
    x_ptr,
    row_max_ptr,
    threshold_ptr,
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
    row_max = tl.load(row_max_ptr + rows, mask=row_mask, other=0.0)
    threshold = tl.load(threshold_ptr + rows, mask=row_mask, other=0.0)

    centered = x - row_max
    selected = tl.where(centered - threshold >= 0.0, dy, 0.0)
    condition = centered > threshold
    negated = -(
        tl.sum(selected, axis=1, keep_dims=True) / tl.sum(tl.where(mask & condition, 1.0, 0.0), axis=1, keep_dims=True)
    )
    dx = selected + tl.where(condition, negated, 0.0)

    tl.store(dx_ptr + offsets, dx, mask=mask)


@triton.jit
def _sparsemax_backward_looped_kernel(
    dy_ptr,
    x_ptr,
    row_max_ptr,
    threshold_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    row_max = tl.load(row_max_ptr + rows, mask=row_mask, other=0.0)
    threshold = tl.load(threshold_ptr + rows, mask=row_mask, other=0.0)

    total = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    total_2 = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        centered = x - row_max
        selected = tl.where(centered - threshold >= 0.0, dy, 0.0)
        condition = centered > threshold
        total += tl.sum(tl.where(mask & condition, 1.0, 0.0), axis=1, keep_dims=True)
        total_2 += tl.sum(selected, axis=1, keep_dims=True)
    negated = -(total_2 / total)

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)

        centered = x - row_max
        selected = tl.where(centered - threshold >= 0.0, dy, 0.0)
        condition = centered > threshold
        dx = selected + tl.where(condition, negated, 0.0)

        tl.store(dx_ptr + offsets, dx, mask=mask, eviction_policy="evict_first")


def sparsemax_forward(x):
    """Returns y, x, row_max, threshold."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x)
    x = x.contiguous()
    y = torch.empty_like(x)
    row_max = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    threshold = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(x.device):
        _sparsemax_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            x, y, row_max, threshold, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    return y, x, row_max, threshold


def sparsemax_backward(dy, x, row_max, threshold):
    """Returns dx."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x)
    if n_cols <= LONG_HELD_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(dy.device):
            _sparsemax_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                row_max,
                threshold,
                dx,
                n_rows,
                n_cols,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2, num_warps=32)
        with device_guard(dy.device):
            _sparsemax_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                row_max,
                threshold,
                dx,
                n_rows,
                n_cols,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return dx


class LigerSparsemaxFunction(torch.autograd.Function):
    """y = sparsemax(x)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, V).

    Returns:
        y: (B, T, V).
    """

    @staticmethod
    def forward(ctx, x):
        y, x, row_max, threshold = sparsemax_forward(x)
        ctx.save_for_backward(x, row_max, threshold)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, row_max, threshold = ctx.saved_tensors
        dx = sparsemax_backward(dy, x, row_max, threshold)
        return dx
