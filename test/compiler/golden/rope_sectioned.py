"""Rotary position embedding whose sections of columns follow positions of their own: y = x * c + rotated(x) * s.

    y = cat(x_0 * where(index[x_3_2] < 16, cos_0, where(index[x_3_2] < 40, cos_1, cos_2)) - x_1 * where(index[x_3_2]
        < 16, sin_0, where(index[x_3_2] < 40, sin_1, sin_2)), x_1 * where(index[x_3_2] < 16, cos_3,
        where(index[x_3_2] < 40, cos_4, cos_5)) + x_0 * where(index[x_3_2] < 16, sin_3, where(index[x_3_2] < 40,
        sin_4, sin_5)))
    dx_0 = dy_1 * where(index[x_3_2] < 16, sin_3, where(index[x_3_2] < 40, sin_4, sin_5)) + dy_0 *
        where(index[x_3_2] < 16, cos_0, where(index[x_3_2] < 40, cos_1, cos_2))
    dx_1 = dy_1 * where(index[x_3_2] < 16, cos_3, where(index[x_3_2] < 40, cos_4, cos_5)) - dy_0 *
        where(index[x_3_2] < 16, sin_0, where(index[x_3_2] < 40, sin_1, sin_2))

Launch: a program takes BLOCK_ROWS rows of BLOCK_COLS columns.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import PIECE_COLS
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import row_settings


@triton.jit
def _rope_sectioned_forward_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    n_rows,
    n_cols,
    n_B,
    n_N,
    n_T,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x_0_offsets = rows * 128 + cols
    x_1_offsets = rows * 128 + cols + 64
    cos_0_value_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols
    cos_1_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + (128 * n_T * n_B)
    cos_2_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + 2 * (128 * n_T * n_B)
    cos_3_value_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + 64
    cos_4_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + (128 * n_T * n_B) + 64
    cos_5_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + 2 * (128 * n_T * n_B) + 64

    x_0 = tl.load(x_ptr + x_0_offsets, mask=mask, other=0.0).to(tl.float32)
    x_1 = tl.load(x_ptr + x_1_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_0_value = tl.load(cos_ptr + cos_0_value_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_1 = tl.load(cos_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_2 = tl.load(cos_ptr + cos_2_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_3_value = tl.load(cos_ptr + cos_3_value_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_4 = tl.load(cos_ptr + cos_4_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_5 = tl.load(cos_ptr + cos_5_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_0_value = tl.load(sin_ptr + cos_0_value_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_2 = tl.load(sin_ptr + cos_2_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_3_value = tl.load(sin_ptr + cos_3_value_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_4 = tl.load(sin_ptr + cos_4_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_5 = tl.load(sin_ptr + cos_5_offsets, mask=mask, other=0.0).to(tl.float32)

    condition = cols < 16
    condition_2 = cols < 40
    product = x_1 * tl.where(condition, sin_0_value, tl.where(condition_2, sin_1, sin_2))
    product_2 = x_0 * tl.where(condition, cos_0_value, tl.where(condition_2, cos_1, cos_2))
    product_3 = x_0 * tl.where(condition, sin_3_value, tl.where(condition_2, sin_4, sin_5))
    product_4 = x_1 * tl.where(condition, cos_3_value, tl.where(condition_2, cos_4, cos_5))

    tl.store(y_ptr + x_0_offsets, product_2 - product, mask=mask)
    tl.store(y_ptr + x_1_offsets, product_4 + product_3, mask=mask)


@triton.jit
def _rope_sectioned_backward_kernel(
    dy_ptr,
    cos_ptr,
    sin_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_B,
    n_N,
    n_T,
    NEEDS_DX: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    dy_1_offsets = rows * 128 + cols + 64
    dy_0_offsets = rows * 128 + cols
    cos_0_value_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols
    cos_1_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + (128 * n_T * n_B)
    cos_2_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + 2 * (128 * n_T * n_B)
    cos_3_value_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + 64
    cos_4_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + (128 * n_T * n_B) + 64
    cos_5_offsets = rows // (n_N * n_T) * (128 * n_T) + rows % n_T * 128 + cols + 2 * (128 * n_T * n_B) + 64

    dy_1 = tl.load(dy_ptr + dy_1_offsets, mask=mask, other=0.0).to(tl.float32)
    dy_0 = tl.load(dy_ptr + dy_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_0_value = tl.load(cos_ptr + cos_0_value_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_1 = tl.load(cos_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_2 = tl.load(cos_ptr + cos_2_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_3_value = tl.load(cos_ptr + cos_3_value_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_4 = tl.load(cos_ptr + cos_4_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_5 = tl.load(cos_ptr + cos_5_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_0_value = tl.load(sin_ptr + cos_0_value_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_2 = tl.load(sin_ptr + cos_2_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_3_value = tl.load(sin_ptr + cos_3_value_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_4 = tl.load(sin_ptr + cos_4_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_5 = tl.load(sin_ptr + cos_5_offsets, mask=mask, other=0.0).to(tl.float32)

    condition = cols < 16
    condition_2 = cols < 40
    product = dy_1 * tl.where(condition, cos_3_value, tl.where(condition_2, cos_4, cos_5))
    product_2 = dy_0 * tl.where(condition, sin_0_value, tl.where(condition_2, sin_1, sin_2))
    dx_1 = product - product_2
    product_3 = dy_1 * tl.where(condition, sin_3_value, tl.where(condition_2, sin_4, sin_5))
    product_4 = dy_0 * tl.where(condition, cos_0_value, tl.where(condition_2, cos_1, cos_2))
    dx_0 = product_3 + product_4

    if NEEDS_DX:
        tl.store(dx_ptr + dy_1_offsets, dx_1, mask=mask)
        tl.store(dx_ptr + dy_0_offsets, dx_0, mask=mask)


def rope_sectioned_forward(x, cos, sin):
    """Returns y, cos, sin."""
    check_floating(x=x, cos=cos, sin=sin)
    check_shape("x", x, (x.shape[-4], x.shape[-3], x.shape[-2], 128))
    check_shape("cos", cos, (3, x.shape[-4], x.shape[-2], x.shape[-1]))
    check_shape("sin", sin, (3, x.shape[-4], x.shape[-2], x.shape[-1]))
    check_rank("x", x, 4)
    x = x.contiguous()
    cos = cos.contiguous()
    sin = sin.contiguous()
    n_rows, n_cols = x.shape[:-1].numel(), 64
    y = torch.empty_like(x, dtype=torch.promote_types(torch.promote_types(x.dtype, cos.dtype), sin.dtype))
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS), tiles=14)
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(x.device):
        _rope_sectioned_forward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            x,
            cos,
            sin,
            y,
            n_rows,
            n_cols,
            x.shape[-4],
            x.shape[-3],
            x.shape[-2],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return y, cos, sin


def rope_sectioned_backward(dy, cos, sin, x_dtype, needs_dx=True):
    """Returns dx."""
    dy = dy.contiguous()
    n_rows, n_cols = dy.shape[:-1].numel(), 64
    dx = torch.empty_like(dy, dtype=x_dtype) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS), tiles=14)
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(dy.device):
        _rope_sectioned_backward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            dy,
            cos,
            sin,
            dx,
            n_rows,
            n_cols,
            dy.shape[-4],
            dy.shape[-3],
            dy.shape[-2],
            NEEDS_DX=needs_dx,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return dx


class LigerRopeSectionedFunction(torch.autograd.Function):
    """y = rope_sectioned(x, cos, sin)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, N, T, x_3).
        cos: (cos_0, B, T, x_3).
        sin: (sin_0, B, T, x_3).

    Returns:
        y: (B, N, T, x_3).
    """

    @staticmethod
    def forward(ctx, x, cos, sin):
        y, cos, sin = rope_sectioned_forward(x, cos, sin)
        ctx.save_for_backward(cos, sin)
        ctx.x_dtype = x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        cos, sin = ctx.saved_tensors
        dx = rope_sectioned_backward(dy, cos, sin, ctx.x_dtype, needs_dx=ctx.needs_input_grad[0])
        return dx, None, None
