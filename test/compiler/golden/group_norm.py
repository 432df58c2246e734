"""Group normalisation over a group of channels and all positions: y = (x - mean) / sqrt(var + eps) * weight + bias.

    y = x_hat * weight + bias, where x_hat = centered * rstd, centered = x - sum_x / (C_1 * T), rstd =
        rsqrt(sum[C_1, T](centered * centered) / (C_1 * T) + eps), sum_x = sum[C_1, T](x)
    dx = (dx_hat - x_hat * (sum[C_1, T](dx_hat * x_hat) / (C_1 * T)) - sum[C_1, T](dx_hat) / (C_1 * T)) * rstd,
        where dx_hat = dy * weight
    dweight = sum[B, T](dy * x_hat)
    dbias = sum[B, T](dy)

Launch: a program holds BLOCK_ROWS whole rows.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import WIDE_ROW
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_divisible
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings


@triton.jit
def _group_norm_forward_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    sum_x_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    n_T,
    n_C_0,
    n_C_1,
    eps: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    LATE: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    weight_offsets = rows % n_C_0 * n_C_1 + cols // n_T

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if not LATE:
        weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)

    sum_x = tl.sum(x, axis=1, keep_dims=True)
    centered = tl.where(mask, x - sum_x / n_cols, 0.0)
    rstd = tl.rsqrt(tl.sum(centered * centered, axis=1, keep_dims=True) / n_cols + eps)
    x_hat = centered * rstd
    tl.store(sum_x_ptr + rows, sum_x, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)
    if LATE:
        weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)
    y = x_hat * weight + bias

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _group_norm_forward_looped_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    sum_x_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    n_T,
    n_C_0,
    n_C_1,
    eps: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    sum_x = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        sum_x += tl.sum(x, axis=1, keep_dims=True)

    sum_of_squares = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        centered = tl.where(mask, x - sum_x / n_cols, 0.0)
        sum_of_squares += tl.sum(centered * centered, axis=1, keep_dims=True)
    rstd = tl.rsqrt(sum_of_squares / n_cols + eps)

    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols
        weight_offsets = rows % n_C_0 * n_C_1 + cols // n_T

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)

        centered = tl.where(mask, x - sum_x / n_cols, 0.0)
        x_hat = centered * rstd
        y = x_hat * weight + bias

        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")

    tl.store(sum_x_ptr + rows, sum_x, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)


@triton.jit
def _group_norm_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    sum_x_ptr,
    rstd_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_T,
    n_C_0,
    n_C_1,
    NEEDS_DX: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    weight_offsets = rows % n_C_0 * n_C_1 + cols // n_T

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)
    sum_x = tl.load(sum_x_ptr + rows, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

    centered = x - sum_x / n_cols
    x_hat = centered * rstd
    dx_hat = dy * weight
    mean_dot = tl.sum(dx_hat * x_hat, axis=1, keep_dims=True) / n_cols
    mean_dx_hat = tl.sum(dx_hat, axis=1, keep_dims=True) / n_cols
    # From the cache again, rather than held.
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    centered = x - sum_x / n_cols
    x_hat = centered * rstd
    dx = (dx_hat - x_hat * mean_dot - mean_dx_hat) * rstd

    if NEEDS_DX:
        tl.store(dx_ptr + offsets, dx, mask=mask)


@triton.jit
def _group_norm_backward_looped_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    sum_x_ptr,
    rstd_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_T,
    n_C_0,
    n_C_1,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    sum_x = tl.load(sum_x_ptr + rows, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    dot_2 = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols
        weight_offsets = rows % n_C_0 * n_C_1 + cols // n_T

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)

        centered = x - sum_x / n_cols
        x_hat = centered * rstd
        dx_hat = dy * weight
        dot += tl.sum(dx_hat * x_hat, axis=1, keep_dims=True)
        dot_2 += tl.sum(dx_hat, axis=1, keep_dims=True)

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols
        weight_offsets = rows % n_C_0 * n_C_1 + cols // n_T

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + weight_offsets, mask=mask, other=0.0).to(tl.float32)

        centered = x - sum_x / n_cols
        x_hat = centered * rstd
        dx_hat = dy * weight
        dx = (dx_hat - x_hat * (dot / n_cols) - dot_2 / n_cols) * rstd

        tl.store(dx_ptr + offsets, dx, mask=mask, eviction_policy="evict_first")


@triton.jit
def _group_norm_dweight_kernel(
    dy_ptr,
    x_ptr,
    sum_x_ptr,
    rstd_ptr,
    dweight_ptr,
    n_rows,
    n_cols,
    n_T,
    n_C_0,
    n_C_1,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dweight = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dweight_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            dy_offsets = (cols // n_T).to(tl.int64) * (n_T * n_rows) + rows * n_T + cols % n_T
            sum_x_offsets = (cols // n_T).to(tl.int64) * n_C_0 + rows // n_C_1

            dy = tl.load(dy_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)
            sum_x = tl.load(sum_x_ptr + sum_x_offsets, mask=mask, other=0.0)
            rstd = tl.load(rstd_ptr + sum_x_offsets, mask=mask, other=0.0)

            centered = x - sum_x / (n_C_1 * n_T)
            x_hat = centered * rstd
            dweight_lanes += dy * x_hat
        dweight += tl.sum(dweight_lanes, axis=1, keep_dims=True)

    tl.store(dweight_ptr + rows, dweight, mask=row_mask)


@triton.jit
def _group_norm_dbias_kernel(
    dy_ptr,
    dbias_ptr,
    n_rows,
    n_cols,
    n_T,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dbias = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dbias_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            dy_offsets = (cols // n_T).to(tl.int64) * (n_T * n_rows) + rows * n_T + cols % n_T

            dy = tl.load(dy_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)

            dbias_lanes += dy
        dbias += tl.sum(dbias_lanes, axis=1, keep_dims=True)

    tl.store(dbias_ptr + rows, dbias, mask=row_mask)


def group_norm_forward(x, weight, bias, num_groups, eps):
    """Returns y, x, weight, sum_x, rstd."""
    check_floating(x=x, weight=weight, bias=bias)
    check_shape("weight", weight, (x.shape[-2],))
    check_shape("bias", bias, weight.shape)
    check_divisible("x.shape[-2]", x.shape[-2], num_groups)
    check_rank("x", x, 3)
    x = x.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    n_rows, n_cols = x.shape[-3] * num_groups, (x.shape[-2] // num_groups) * x.shape[-1]
    y = torch.empty_like(x)
    sum_x = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, late=True, shared=2)
        with device_guard(x.device):
            _group_norm_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                bias,
                y,
                sum_x,
                rstd,
                n_rows,
                n_cols,
                x.shape[-1],
                num_groups,
                x.shape[-2] // num_groups,
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                LATE=n_cols > WIDE_ROW,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(x.device):
            _group_norm_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                bias,
                y,
                sum_x,
                rstd,
                n_rows,
                n_cols,
                x.shape[-1],
                num_groups,
                x.shape[-2] // num_groups,
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return y, x, weight, sum_x, rstd


def group_norm_backward(
    dy, x, weight, sum_x, rstd, num_groups, bias_dtype, needs_dx=True, needs_dweight=True, needs_dbias=True
):
    """Returns dx, dweight, dbias."""
    dy = dy.contiguous()
    n_rows, n_cols = dy.shape[-3] * num_groups, (dy.shape[-2] // num_groups) * dy.shape[-1]
    dx = torch.empty_like(x) if needs_dx else None
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, again=True)
        with device_guard(dy.device):
            _group_norm_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                weight,
                sum_x,
                rstd,
                dx,
                n_rows,
                n_cols,
                dy.shape[-1],
                num_groups,
                dy.shape[-2] // num_groups,
                NEEDS_DX=needs_dx,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        if needs_dx:
            BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
            with device_guard(dy.device):
                _group_norm_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                    dy,
                    x,
                    weight,
                    sum_x,
                    rstd,
                    dx,
                    n_rows,
                    n_cols,
                    dy.shape[-1],
                    num_groups,
                    dy.shape[-2] // num_groups,
                    BLOCK_ROWS=BLOCK_ROWS,
                    BLOCK_COLS=BLOCK_COLS,
                    num_warps=num_warps,
                )
    n_rows, n_cols = weight.numel(), dy.shape[-3] * dy.shape[-1]
    dweight = torch.empty_like(weight) if needs_dweight else None
    if needs_dweight:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(dy.device):
            _group_norm_dweight_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                sum_x,
                rstd,
                dweight,
                n_rows,
                n_cols,
                dy.shape[-1],
                num_groups,
                dy.shape[-2] // num_groups,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    dbias = torch.empty_like(weight, dtype=bias_dtype) if needs_dbias else None
    if needs_dbias:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(dy.device):
            _group_norm_dbias_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                dbias,
                n_rows,
                n_cols,
                dy.shape[-1],
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return dx, dweight, dbias


class LigerGroupNormFunction(torch.autograd.Function):
    """y = group_norm(x, weight, bias, num_groups, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, C_0 * C_1, T).
        weight: (C_0 * C_1,).
        bias: (C_0 * C_1,).

    Returns:
        y: (B, C_0 * C_1, T).
    """

    @staticmethod
    def forward(ctx, x, weight, bias, num_groups, eps):
        y, x, weight, sum_x, rstd = group_norm_forward(x, weight, bias, num_groups, eps)
        ctx.save_for_backward(x, weight, sum_x, rstd)
        ctx.num_groups = num_groups
        ctx.bias_dtype = bias.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, sum_x, rstd = ctx.saved_tensors
        dx, dweight, dbias = group_norm_backward(
            dy,
            x,
            weight,
            sum_x,
            rstd,
            ctx.num_groups,
            ctx.bias_dtype,
            needs_dx=ctx.needs_input_grad[0],
            needs_dweight=ctx.needs_input_grad[1],
            needs_dbias=ctx.needs_input_grad[2],
        )
        return dx, dweight, dbias, None, None
