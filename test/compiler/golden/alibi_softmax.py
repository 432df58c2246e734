"""Causal softmax of attention scores with a linear bias: y = softmax(scale * x - slope * (query - key)).

    y = numerator / denominator, where numerator = exp(shifted), denominator = sum[S](numerator), shifted =
        where(index[S] > query, -inf, scores) - row_max, query = index[T] + (S - T), scores = x * scale - slope *
        distance, row_max = max[S](where(index[S] > query, -inf, scores)), distance = float(query - index[S])
    dx = dscores * scale, where dscores = where(index[S] > query, 0, y * (dy - sum[S](dy * y)))
    dslope = sum[B, T](total), where total = sum[S](-(dscores * distance))

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
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import exp_or_zero
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape


@triton.jit
def _alibi_softmax_forward_kernel(
    x_ptr,
    slope_ptr,
    y_ptr,
    row_max_ptr,
    denominator_ptr,
    n_rows,
    n_cols,
    n_N,
    n_T,
    scale: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    slope_offsets = rows // n_T % n_N

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    slope = tl.load(slope_ptr + slope_offsets, mask=row_mask, other=0.0).to(tl.float32)

    query = rows % n_T + (n_cols - n_T)
    distance = tl.cast(query - cols, tl.float32)
    scores = x * scale - slope * distance
    selected = tl.where(cols > query, float("-inf"), scores)
    row_max = tl.max(tl.where(mask, selected, float("-inf")), axis=1, keep_dims=True)
    shifted = selected - row_max
    numerator = exp_or_zero(shifted)
    denominator = tl.sum(tl.where(mask, numerator, 0.0), axis=1, keep_dims=True)
    y = numerator / denominator

    tl.store(row_max_ptr + rows, row_max, mask=row_mask)
    tl.store(denominator_ptr + rows, denominator, mask=row_mask)
    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _alibi_softmax_forward_looped_kernel(
    x_ptr,
    slope_ptr,
    y_ptr,
    row_max_ptr,
    denominator_ptr,
    n_rows,
    n_cols,
    n_N,
    n_T,
    scale: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    slope_offsets = rows // n_T % n_N
    slope = tl.load(slope_ptr + slope_offsets, mask=row_mask, other=0.0).to(tl.float32)
    query = rows % n_T + (n_cols - n_T)

    row_max = tl.full((BLOCK_ROWS, 1), float("-inf"), dtype=tl.float32)
    denominator = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        distance = tl.cast(query - cols, tl.float32)
        scores = x * scale - slope * distance
        selected = tl.where(cols > query, float("-inf"), scores)
        new_max = tl.maximum(row_max, tl.max(tl.where(mask, selected, float("-inf")), axis=1, keep_dims=True))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # no NaN while all is -inf
        denominator = denominator * exp_or_zero(row_max - shift)
        denominator += tl.sum(exp_or_zero(tl.where(mask, selected, float("-inf")) - shift), axis=1, keep_dims=True)
        row_max = new_max

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)

        distance = tl.cast(query - cols, tl.float32)
        scores = x * scale - slope * distance
        selected = tl.where(cols > query, float("-inf"), scores)
        shifted = selected - row_max
        numerator = exp_or_zero(shifted)
        y = numerator / denominator

        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")

    tl.store(row_max_ptr + rows, row_max, mask=row_mask)
    tl.store(denominator_ptr + rows, denominator, mask=row_mask)


@triton.jit
def _alibi_softmax_backward_kernel(
    dy_ptr,
    x_ptr,
    slope_ptr,
    row_max_ptr,
    denominator_ptr,
    dx_ptr,
    total_ptr,
    n_rows,
    n_cols,
    n_N,
    n_T,
    scale: tl.constexpr,
    NEEDS_DX: tl.constexpr,
    NEEDS_DSLOPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    slope_offsets = rows // n_T % n_N

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    slope = tl.load(slope_ptr + slope_offsets, mask=row_mask, other=0.0).to(tl.float32)
    row_max = tl.load(row_max_ptr + rows, mask=row_mask, other=0.0)
    denominator = tl.load(denominator_ptr + rows, mask=row_mask, other=0.0)

    query = rows % n_T + (n_cols - n_T)
    distance = tl.cast(query - cols, tl.float32)
    scores = x * scale - slope * distance
    condition = cols > query
    shifted = tl.where(condition, float("-inf"), scores) - row_max
    numerator = exp_or_zero(shifted)
    y = numerator / denominator
    dot = tl.sum(tl.where(mask, dy * y, 0.0), axis=1, keep_dims=True)
    dscores = tl.where(condition, 0.0, y * (dy - dot))
    dx = dscores * scale
    total = tl.sum(tl.where(mask, -(dscores * distance), 0.0), axis=1, keep_dims=True)

    if NEEDS_DX:
        tl.store(dx_ptr + offsets, dx, mask=mask)
    if NEEDS_DSLOPE:
        tl.store(total_ptr + rows, total, mask=row_mask)


@triton.jit
def _alibi_softmax_backward_looped_kernel(
    dy_ptr,
    x_ptr,
    slope_ptr,
    row_max_ptr,
    denominator_ptr,
    dx_ptr,
    total_ptr,
    n_rows,
    n_cols,
    n_N,
    n_T,
    scale: tl.constexpr,
    NEEDS_DX: tl.constexpr,
    NEEDS_DSLOPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    slope_offsets = rows // n_T % n_N
    slope = tl.load(slope_ptr + slope_offsets, mask=row_mask, other=0.0).to(tl.float32)
    row_max = tl.load(row_max_ptr + rows, mask=row_mask, other=0.0)
    denominator = tl.load(denominator_ptr + rows, mask=row_mask, other=0.0)
    query = rows % n_T + (n_cols - n_T)

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        distance = tl.cast(query - cols, tl.float32)
        scores = x * scale - slope * distance
        condition = cols > query
        shifted = tl.where(condition, float("-inf"), scores) - row_max
        numerator = exp_or_zero(shifted)
        y = numerator / denominator
        dot += tl.sum(tl.where(mask, dy * y, 0.0), axis=1, keep_dims=True)

    total = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)

        distance = tl.cast(query - cols, tl.float32)
        scores = x * scale - slope * distance
        condition = cols > query
        shifted = tl.where(condition, float("-inf"), scores) - row_max
        numerator = exp_or_zero(shifted)
        y = numerator / denominator
        dscores = tl.where(condition, 0.0, y * (dy - dot))
        dx = dscores * scale
        total += tl.sum(tl.where(mask, -(dscores * distance), 0.0), axis=1, keep_dims=True)

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask, eviction_policy="evict_first")

    if NEEDS_DSLOPE:
        tl.store(total_ptr + rows, total, mask=row_mask)


@triton.jit
def _alibi_softmax_dslope_kernel(
    total_ptr,
    dslope_ptr,
    n_rows,
    n_cols,
    n_T,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dslope = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dslope_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            total_offsets = (cols // n_T).to(tl.int64) * (n_T * n_rows) + rows * n_T + cols % n_T

            total = tl.load(total_ptr + total_offsets, mask=mask, other=0.0)

            dslope_lanes += total
        dslope += tl.sum(dslope_lanes, axis=1, keep_dims=True)

    tl.store(dslope_ptr + rows, dslope, mask=row_mask)


def alibi_softmax_forward(x, slope, scale):
    """Returns y, x, slope, row_max, denominator."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, slope=slope)
    check_shape("slope", slope, (x.shape[-3],))
    check_rank("x", x, 4)
    x = x.contiguous()
    slope = slope.contiguous()
    y = torch.empty_like(x)
    row_max = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    denominator = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        # No fused multiply-add: products are rounded as their row's maximum is, which is subtracted from them.
        with device_guard(x.device):
            _alibi_softmax_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                slope,
                y,
                row_max,
                denominator,
                n_rows,
                n_cols,
                x.shape[-3],
                x.shape[-2],
                scale=scale,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
                enable_fp_fusion=False,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        # No fused multiply-add: products are rounded as their row's maximum is, which is subtracted from them.
        with device_guard(x.device):
            _alibi_softmax_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                slope,
                y,
                row_max,
                denominator,
                n_rows,
                n_cols,
                x.shape[-3],
                x.shape[-2],
                scale=scale,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
                enable_fp_fusion=False,
            )
    return y, x, slope, row_max, denominator


def alibi_softmax_backward(dy, x, slope, row_max, denominator, scale, needs_dx=True, needs_dslope=True):
    """Returns dx, dslope."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x) if needs_dx else None
    total = torch.empty(n_rows, dtype=torch.float32, device=dy.device) if needs_dslope else None
    if n_cols <= LONG_HELD_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        # No fused multiply-add: products are rounded as their row's maximum is, which is subtracted from them.
        with device_guard(dy.device):
            _alibi_softmax_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                slope,
                row_max,
                denominator,
                dx,
                total,
                n_rows,
                n_cols,
                dy.shape[-3],
                dy.shape[-2],
                scale=scale,
                NEEDS_DX=needs_dx,
                NEEDS_DSLOPE=needs_dslope,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
                enable_fp_fusion=False,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2, num_warps=32)
        # No fused multiply-add: products are rounded as their row's maximum is, which is subtracted from them.
        with device_guard(dy.device):
            _alibi_softmax_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                slope,
                row_max,
                denominator,
                dx,
                total,
                n_rows,
                n_cols,
                dy.shape[-3],
                dy.shape[-2],
                scale=scale,
                NEEDS_DX=needs_dx,
                NEEDS_DSLOPE=needs_dslope,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
                enable_fp_fusion=False,
            )
    n_rows, n_cols = slope.numel(), dy.shape[-4] * dy.shape[-2]
    dslope = torch.empty_like(slope) if needs_dslope else None
    if needs_dslope:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(dy.device):
            _alibi_softmax_dslope_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                total,
                dslope,
                n_rows,
                n_cols,
                dy.shape[-2],
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return dx, dslope


class LigerAlibiSoftmaxFunction(torch.autograd.Function):
    """y = alibi_softmax(x, slope, scale)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, N, T, S).
        slope: (N,).

    Returns:
        y: (B, N, T, S).
    """

    @staticmethod
    def forward(ctx, x, slope, scale):
        y, x, slope, row_max, denominator = alibi_softmax_forward(x, slope, scale)
        ctx.save_for_backward(x, slope, row_max, denominator)
        ctx.scale = scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, slope, row_max, denominator = ctx.saved_tensors
        dx, dslope = alibi_softmax_backward(
            dy,
            x,
            slope,
            row_max,
            denominator,
            ctx.scale,
            needs_dx=ctx.needs_input_grad[0],
            needs_dslope=ctx.needs_input_grad[1],
        )
        return dx, dslope, None
