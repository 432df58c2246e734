"""Weights rounded to -1, 0 and 1 times one scale, with a straight-through gradient: y = round(x / scale) * scale.

    y = x + (levels * scale - x), where levels = min(max(rint(x / scale), -1), 1), scale = max(total / (H * K),
        eps), total = sum[K](row_total), row_total = sum[H](abs(x))
    dx = dy

Launch: a program takes BLOCK_ROWS rows, block of columns by block.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable
from triton.language.extra import libdevice

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_shape

BLOCK_SIZE = 1024


@triton.jit
def _ternary_weights_y_forward_kernel(
    x_ptr,
    total_ptr,
    y_ptr,
    n_elements,
    eps: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    total = tl.load(total_ptr)

    mean = total / n_elements
    scale = tl.where(mean < tl.cast(eps, tl.float32), tl.cast(eps, tl.float32), mean)
    rounded = libdevice.nearbyint(x / scale)
    clamped = tl.where(rounded < -1.0, -1.0, rounded)
    levels = tl.where(clamped > 1.0, 1.0, clamped)
    y = x + (levels * scale - x)

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _ternary_weights_row_total_forward_kernel(
    x_ptr,
    row_total_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    row_total = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        row_total_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            offsets = rows * n_cols + cols

            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

            row_total_lanes += tl.abs(x)
        row_total += tl.sum(row_total_lanes, axis=1, keep_dims=True)

    tl.store(row_total_ptr + rows, row_total, mask=row_mask)


@triton.jit
def _ternary_weights_backward_kernel(
    dy_ptr,
    dx_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    tl.store(dx_ptr + offsets, dy, mask=mask)


def ternary_weights_forward(x, eps):
    """Returns y."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x)
    x = x.contiguous()
    row_total = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
    with device_guard(x.device):
        _ternary_weights_row_total_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            x, row_total, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    total = row_total.sum()
    n_elements = x.numel()
    y = torch.empty_like(x)
    with device_guard(x.device):
        _ternary_weights_y_forward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            x, total, y, n_elements, eps=eps, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return y


def ternary_weights_backward(dy):
    """Returns dx."""
    dy = dy.contiguous()
    n_elements = dy.numel()
    dx = torch.empty_like(dy)
    with device_guard(dy.device):
        _ternary_weights_backward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            dy, dx, n_elements, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return dx


class LigerTernaryWeightsFunction(torch.autograd.Function):
    """y = ternary_weights(x, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (K, H).

    Returns:
        y: (K, H).
    """

    @staticmethod
    def forward(ctx, x, eps):
        y = ternary_weights_forward(x, eps)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        dx = ternary_weights_backward(dy)
        return dx, None
