"""Layer normalisation over the last dimension: y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.

    y = x_hat * weight + bias, where x_hat = centered * rstd, centered = x - mean, rstd = rsqrt(variance + eps),
        mean = sum[H](x) / H, variance = sum[H](centered * centered) / H
    dx = (dx_hat - x_hat * (sum[H](dx_hat * x_hat) / H) - sum[H](dx_hat) / H) * rstd, where dx_hat = dy * weight
    dweight = sum[B, T](dy * x_hat)
    dbias = sum[B, T](dy)

Launch: a program holds BLOCK_ROWS whole rows; in backward it strides over rows and keeps its part of dweight and
dbias.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import WIDE_ROW
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import persistent_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import sum_each
from kernels.ops.utils import wide_settings


@triton.jit
def _layer_norm_forward_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    eps: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
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
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32) if HAS_WEIGHT else 1.0
    bias = tl.load(bias_ptr + cols, mask=col_mask, other=0.0).to(tl.float32) if HAS_BIAS else 0.0

    mean = tl.sum(x, axis=1, keep_dims=True) / n_cols
    centered = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centered * centered, axis=1, keep_dims=True) / n_cols
    rstd = tl.rsqrt(variance + eps)
    x_hat = centered * rstd
    tl.store(mean_ptr + rows, mean, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)
    y = x_hat * weight + bias

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _layer_norm_forward_wide_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    n_cols: tl.constexpr,
    eps: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = (rows < n_rows) | (BLOCK_ROWS == 1)

    lane_means = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    sum_of_squares_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & ((cols < n_cols) | (n_cols % BLOCK_COLS == 0))
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        apart = tl.where(mask, x - lane_means, 0.0)
        lane_means += apart * (BLOCK_COLS / (start + BLOCK_COLS))
        sum_of_squares_lanes += apart * (apart * (start / (start + BLOCK_COLS)))
    seen = tl.cdiv(n_cols - tl.arange(0, BLOCK_COLS), BLOCK_COLS)[None, :]  # by each lane
    total = tl.sum(lane_means * seen, axis=1, keep_dims=True)
    apart = lane_means - total / n_cols
    sum_of_squares = tl.sum(sum_of_squares_lanes + apart * apart * seen, axis=1, keep_dims=True)
    mean = total / n_cols
    variance = sum_of_squares / n_cols
    rstd = tl.rsqrt(variance + eps)

    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        col_mask = (cols < n_cols) | (n_cols % BLOCK_COLS == 0)
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = (
            tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            if HAS_WEIGHT
            else 1.0
        )
        bias = (
            tl.load(bias_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            if HAS_BIAS
            else 0.0
        )

        centered = tl.where(mask, x - mean, 0.0)
        x_hat = centered * rstd
        y = x_hat * weight + bias

        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")

    tl.store(mean_ptr + rows, mean, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)


@triton.jit
def _layer_norm_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_partial_ptr,
    dbias_partial_ptr,
    n_rows,
    n_cols,
    HAS_WEIGHT: tl.constexpr,
    NEEDS_DX: tl.constexpr,
    NEEDS_DWEIGHT: tl.constexpr,
    NEEDS_DBIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    RELOAD: tl.constexpr,
):
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    if not RELOAD:
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32) if HAS_WEIGHT else 1.0
    dweight = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    dbias = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

    for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        row_mask = rows < n_rows
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols

        if RELOAD:
            weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32) if HAS_WEIGHT else 1.0
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

        centered = x - mean
        x_hat = centered * rstd
        dx_hat = dy * weight
        mean_dot = tl.sum(dx_hat * x_hat, axis=1, keep_dims=True) / n_cols
        mean_dx_hat = tl.sum(dx_hat, axis=1, keep_dims=True) / n_cols
        if RELOAD:  # what did not stay in registers
            weight = (
                tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
                if HAS_WEIGHT
                else 1.0
            )
            dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            centered = x - mean
            x_hat = centered * rstd
            dx_hat = dy * weight
        dx = (dx_hat - x_hat * mean_dot - mean_dx_hat) * rstd

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask)
        if NEEDS_DWEIGHT:
            dweight += dy * x_hat
        if NEEDS_DBIAS:
            dbias += dy

    if NEEDS_DWEIGHT:
        tl.store(
            dweight_partial_ptr + tl.program_id(0) * n_cols + cols,
            tl.sum(dweight, axis=0, keep_dims=True),
            mask=col_mask,
        )
    if NEEDS_DBIAS:
        tl.store(
            dbias_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dbias, axis=0, keep_dims=True), mask=col_mask
        )


def layer_norm_forward(x, weight, bias, eps):
    """Returns y, x, weight, mean, rstd."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, weight=weight, bias=bias)
    check_shape("weight", weight, (x.shape[-1],))
    check_shape("bias", bias, (x.shape[-1],))
    x = x.contiguous()
    weight = weight.contiguous() if weight is not None else None
    bias = bias.contiguous() if bias is not None else None
    y = torch.empty_like(x)
    mean = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= WIDE_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, late=True, shared=2)
        with device_guard(x.device):
            _layer_norm_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                bias,
                y,
                mean,
                rstd,
                n_rows,
                n_cols,
                eps=eps,
                HAS_WEIGHT=weight is not None,
                HAS_BIAS=bias is not None,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = wide_settings(n_cols)
        with device_guard(x.device):
            _layer_norm_forward_wide_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                bias,
                y,
                mean,
                rstd,
                n_rows,
                n_cols,
                eps=eps,
                HAS_WEIGHT=weight is not None,
                HAS_BIAS=bias is not None,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return y, x, weight, mean, rstd


def layer_norm_backward(dy, x, weight, mean, rstd, bias_dtype, needs_dx=True, needs_dweight=True, needs_dbias=True):
    """Returns dx, dweight, dbias."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = persistent_settings(
        n_cols, dy.element_size() + x.element_size(), sums=2
    )
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), per_sm * sm_count(dy.device))
    partials = torch.empty((2, n_programs, n_cols), dtype=torch.float32, device=dy.device)
    dweight_partial, dbias_partial = partials
    with device_guard(dy.device):
        _layer_norm_backward_kernel[(n_programs,)](
            dy,
            x,
            weight,
            mean,
            rstd,
            dx,
            dweight_partial,
            dbias_partial,
            n_rows,
            n_cols,
            HAS_WEIGHT=weight is not None,
            NEEDS_DX=needs_dx,
            NEEDS_DWEIGHT=needs_dweight,
            NEEDS_DBIAS=needs_dbias,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            RELOAD=n_cols > WIDE_ROW,
            num_warps=num_warps,
        )
    dweight, dbias = sum_each(partials, weight.dtype if needs_dweight else None, bias_dtype if needs_dbias else None)
    return dx, dweight, dbias


class LigerLayerNormFunction(torch.autograd.Function):
    """y = layer_norm(x, weight, bias, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        weight: (H,) or None, which stands for 1.
        bias: (H,) or None, which stands for 0.

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y, x, weight, mean, rstd = layer_norm_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dweight, dbias = layer_norm_backward(
            dy,
            x,
            weight,
            mean,
            rstd,
            ctx.bias_dtype,
            needs_dx=ctx.needs_input_grad[0],
            needs_dweight=ctx.needs_input_grad[1],
            needs_dbias=ctx.needs_input_grad[2],
        )
        return dx, dweight, dbias, None
