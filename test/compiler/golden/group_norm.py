"""Group normalisation over a group of channels and all positions: y = (x - mean) / sqrt(var + eps) * weight + bias.

    y = x_hat * weight + bias, where x_hat = centered * rstd, centered = x - mean, rstd =
        rsqrt(sum[C_1](section_squares + shift * shift * T) / (C_1 * T) + eps), mean = sum[C_1](sum_x) / (C_1 * T),
        section_squares = sum[T]((x - section_mean) * (x - section_mean)), shift = section_mean - mean, sum_x =
        sum[T](x), section_mean = sum_x / T
    dx = (dx_hat - x_hat * mean_product - mean_product_2) * rstd, where dx_hat = dy * weight, mean_product =
        sum[C_1](product) / (C_1 * T), mean_product_2 = sum[C_1](product_2) / (C_1 * T), product = weight *
        row_dweight, product_2 = weight * row_dbias, row_dweight = sum[T](dy * x_hat), row_dbias = sum[T](dy)
    dweight = sum[B](row_dweight)
    dbias = sum[B](row_dbias)

Launch: a program holds BLOCK_ROWS whole rows.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_HELD_ROW
from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import PIECE_COLS
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_divisible
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import column_settings
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings


@triton.jit
def _group_norm_sum_x_forward_kernel(
    x_ptr,
    sum_x_ptr,
    section_mean_ptr,
    section_squares_ptr,
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

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    sum_x = tl.sum(x, axis=1, keep_dims=True)
    section_mean = sum_x / n_cols
    difference = tl.where(mask, x - section_mean, 0.0)
    section_squares = tl.sum(difference * difference, axis=1, keep_dims=True)

    tl.store(sum_x_ptr + rows, sum_x, mask=row_mask)
    tl.store(section_mean_ptr + rows, section_mean, mask=row_mask)
    tl.store(section_squares_ptr + rows, section_squares, mask=row_mask)


@triton.jit
def _group_norm_mean_forward_kernel(
    sum_x_ptr,
    section_mean_ptr,
    section_squares_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    n_T,
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

    sum_x = tl.load(sum_x_ptr + offsets, mask=mask, other=0.0)
    section_mean = tl.load(section_mean_ptr + offsets, mask=mask, other=0.0)
    section_squares = tl.load(section_squares_ptr + offsets, mask=mask, other=0.0)

    mean = tl.sum(sum_x, axis=1, keep_dims=True) / (n_cols * n_T)
    shift = section_mean - mean
    shifted = tl.where(mask, section_squares + shift * shift * n_T, 0.0)
    rstd = tl.rsqrt(tl.sum(shifted, axis=1, keep_dims=True) / (n_cols * n_T) + eps)

    tl.store(mean_ptr + rows, mean, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)


@triton.jit
def _group_norm_y_forward_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    y_ptr,
    n_rows,
    n_cols,
    n_C_0,
    n_C_1,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    weight_offsets = rows % (n_C_0 * n_C_1)
    mean_offsets = rows // n_C_1

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + weight_offsets, mask=row_mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + weight_offsets, mask=row_mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + mean_offsets, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + mean_offsets, mask=row_mask, other=0.0)

    centered = x - mean
    x_hat = centered * rstd
    y = x_hat * weight + bias

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _group_norm_sum_x_forward_looped_kernel(
    x_ptr,
    sum_x_ptr,
    section_mean_ptr,
    section_squares_ptr,
    n_rows,
    n_cols,
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
    section_mean = sum_x / n_cols

    section_squares = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)

        difference = tl.where(mask, x - section_mean, 0.0)
        section_squares += tl.sum(difference * difference, axis=1, keep_dims=True)

    tl.store(sum_x_ptr + rows, sum_x, mask=row_mask)
    tl.store(section_mean_ptr + rows, section_mean, mask=row_mask)
    tl.store(section_squares_ptr + rows, section_squares, mask=row_mask)


@triton.jit
def _group_norm_mean_forward_looped_kernel(
    sum_x_ptr,
    section_mean_ptr,
    section_squares_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    n_T,
    eps: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    total = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        sum_x = tl.load(sum_x_ptr + offsets, mask=mask, other=0.0)

        total += tl.sum(sum_x, axis=1, keep_dims=True)
    mean = total / (n_cols * n_T)

    total_2 = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        section_mean = tl.load(section_mean_ptr + offsets, mask=mask, other=0.0)
        section_squares = tl.load(section_squares_ptr + offsets, mask=mask, other=0.0)

        shift = section_mean - mean
        shifted = tl.where(mask, section_squares + shift * shift * n_T, 0.0)
        total_2 += tl.sum(shifted, axis=1, keep_dims=True)

    rstd = tl.rsqrt(total_2 / (n_cols * n_T) + eps)
    tl.store(mean_ptr + rows, mean, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)


@triton.jit
def _group_norm_product_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    product_ptr,
    product_2_ptr,
    row_dweight_ptr,
    row_dbias_ptr,
    n_rows,
    n_cols,
    n_C_0,
    n_C_1,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    weight_offsets = rows % (n_C_0 * n_C_1)
    mean_offsets = rows // n_C_1

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + weight_offsets, mask=row_mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + mean_offsets, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + mean_offsets, mask=row_mask, other=0.0)

    centered = x - mean
    x_hat = centered * rstd
    row_dweight = tl.sum(dy * x_hat, axis=1, keep_dims=True)
    product = weight * row_dweight
    row_dbias = tl.sum(dy, axis=1, keep_dims=True)
    product_2 = weight * row_dbias

    tl.store(row_dweight_ptr + rows, row_dweight, mask=row_mask)
    tl.store(product_ptr + rows, product, mask=row_mask)
    tl.store(row_dbias_ptr + rows, row_dbias, mask=row_mask)
    tl.store(product_2_ptr + rows, product_2, mask=row_mask)


@triton.jit
def _group_norm_mean_product_backward_kernel(
    product_ptr,
    product_2_ptr,
    mean_product_ptr,
    mean_product_2_ptr,
    n_rows,
    n_cols,
    n_T,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols

    product = tl.load(product_ptr + offsets, mask=mask, other=0.0)
    product_2 = tl.load(product_2_ptr + offsets, mask=mask, other=0.0)

    mean_product = tl.sum(product, axis=1, keep_dims=True) / (n_cols * n_T)
    mean_product_2 = tl.sum(product_2, axis=1, keep_dims=True) / (n_cols * n_T)

    tl.store(mean_product_ptr + rows, mean_product, mask=row_mask)
    tl.store(mean_product_2_ptr + rows, mean_product_2, mask=row_mask)


@triton.jit
def _group_norm_dx_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    mean_product_ptr,
    mean_product_2_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_C_0,
    n_C_1,
    NEEDS_DX: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    weight_offsets = rows % (n_C_0 * n_C_1)
    mean_offsets = rows // n_C_1

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + weight_offsets, mask=row_mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + mean_offsets, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + mean_offsets, mask=row_mask, other=0.0)
    mean_product = tl.load(mean_product_ptr + mean_offsets, mask=row_mask, other=0.0)
    mean_product_2 = tl.load(mean_product_2_ptr + mean_offsets, mask=row_mask, other=0.0)

    dx_hat = dy * weight
    centered = x - mean
    x_hat = centered * rstd
    dx = (dx_hat - x_hat * mean_product - mean_product_2) * rstd

    if NEEDS_DX:
        tl.store(dx_ptr + offsets, dx, mask=mask)


@triton.jit
def _group_norm_product_backward_looped_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    product_ptr,
    product_2_ptr,
    row_dweight_ptr,
    row_dbias_ptr,
    n_rows,
    n_cols,
    n_C_0,
    n_C_1,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    weight_offsets = rows % (n_C_0 * n_C_1)
    mean_offsets = rows // n_C_1
    weight = tl.load(weight_ptr + weight_offsets, mask=row_mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + mean_offsets, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + mean_offsets, mask=row_mask, other=0.0)

    row_dweight = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    row_dbias = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        row_dweight_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        row_dbias_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            offsets = rows * n_cols + cols

            dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

            centered = x - mean
            x_hat = centered * rstd
            row_dweight_lanes += dy * x_hat
            row_dbias_lanes += dy
        row_dweight += tl.sum(row_dweight_lanes, axis=1, keep_dims=True)
        row_dbias += tl.sum(row_dbias_lanes, axis=1, keep_dims=True)

    product = weight * row_dweight
    product_2 = weight * row_dbias
    tl.store(product_ptr + rows, product, mask=row_mask)
    tl.store(product_2_ptr + rows, product_2, mask=row_mask)
    tl.store(row_dweight_ptr + rows, row_dweight, mask=row_mask)
    tl.store(row_dbias_ptr + rows, row_dbias, mask=row_mask)


@triton.jit
def _group_norm_mean_product_backward_looped_kernel(
    product_ptr,
    product_2_ptr,
    mean_product_ptr,
    mean_product_2_ptr,
    n_rows,
    n_cols,
    n_T,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    dot_2 = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dot_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        dot_2_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            offsets = rows * n_cols + cols

            product = tl.load(product_ptr + offsets, mask=mask, other=0.0)
            product_2 = tl.load(product_2_ptr + offsets, mask=mask, other=0.0)

            dot_lanes += product
            dot_2_lanes += product_2
        dot += tl.sum(dot_lanes, axis=1, keep_dims=True)
        dot_2 += tl.sum(dot_2_lanes, axis=1, keep_dims=True)

    mean_product = dot / (n_cols * n_T)
    mean_product_2 = dot_2 / (n_cols * n_T)
    tl.store(mean_product_ptr + rows, mean_product, mask=row_mask)
    tl.store(mean_product_2_ptr + rows, mean_product_2, mask=row_mask)


@triton.jit
def _group_norm_dweight_dbias_kernel(
    row_dweight_ptr,
    row_dbias_ptr,
    dweight_ptr,
    dbias_ptr,
    n_rows,
    n_cols,
    NEEDS_DWEIGHT: tl.constexpr,
    NEEDS_DBIAS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dweight = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    dbias = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dweight_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        dbias_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            row_dweight_offsets = cols.to(tl.int64) * n_rows + rows

            row_dweight = tl.load(row_dweight_ptr + row_dweight_offsets, mask=mask, other=0.0)
            row_dbias = tl.load(row_dbias_ptr + row_dweight_offsets, mask=mask, other=0.0)

            dweight_lanes += row_dweight
            dbias_lanes += row_dbias
        dweight += tl.sum(dweight_lanes, axis=1, keep_dims=True)
        dbias += tl.sum(dbias_lanes, axis=1, keep_dims=True)

    if NEEDS_DWEIGHT:
        tl.store(dweight_ptr + rows, dweight, mask=row_mask)
    if NEEDS_DBIAS:
        tl.store(dbias_ptr + rows, dbias, mask=row_mask)


def group_norm_forward(x, weight, bias, num_groups, eps):
    """Returns y, x, weight, mean, rstd."""
    check_floating(x=x, weight=weight, bias=bias)
    check_shape("weight", weight, (x.shape[-2],))
    check_shape("bias", bias, weight.shape)
    check_divisible("x.shape[-2]", x.shape[-2], num_groups)
    check_rank("x", x, 3)
    x = x.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    sum_x = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    section_mean = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    section_squares = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(x.device):
            _group_norm_sum_x_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                sum_x,
                section_mean,
                section_squares,
                n_rows,
                n_cols,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(x.device):
            _group_norm_sum_x_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                sum_x,
                section_mean,
                section_squares,
                n_rows,
                n_cols,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    n_rows, n_cols = x.shape[-3] * num_groups, x.shape[-2] // num_groups
    mean = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(x.device):
            _group_norm_mean_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                sum_x,
                section_mean,
                section_squares,
                mean,
                rstd,
                n_rows,
                n_cols,
                x.shape[-1],
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2)
        with device_guard(x.device):
            _group_norm_mean_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                sum_x,
                section_mean,
                section_squares,
                mean,
                rstd,
                n_rows,
                n_cols,
                x.shape[-1],
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    y = torch.empty_like(x)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS))
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(x.device):
        _group_norm_y_forward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            x,
            weight,
            bias,
            mean,
            rstd,
            y,
            n_rows,
            n_cols,
            num_groups,
            x.shape[-2] // num_groups,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return y, x, weight, mean, rstd


def group_norm_backward(
    dy, x, weight, mean, rstd, num_groups, bias_dtype, needs_dx=True, needs_dweight=True, needs_dbias=True
):
    """Returns dx, dweight, dbias."""
    dy = dy.contiguous()
    n_rows, n_cols = dy.shape[:-1].numel(), dy.shape[-1]
    product = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    product_2 = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    row_dweight = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    row_dbias = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    if n_cols <= LONG_HELD_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(dy.device):
            _group_norm_product_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                weight,
                mean,
                rstd,
                product,
                product_2,
                row_dweight,
                row_dbias,
                n_rows,
                n_cols,
                num_groups,
                dy.shape[-2] // num_groups,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2)
        with device_guard(dy.device):
            _group_norm_product_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                dy,
                x,
                weight,
                mean,
                rstd,
                product,
                product_2,
                row_dweight,
                row_dbias,
                n_rows,
                n_cols,
                num_groups,
                dy.shape[-2] // num_groups,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    n_rows, n_cols = dy.shape[-3] * num_groups, dy.shape[-2] // num_groups
    mean_product = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    mean_product_2 = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    if n_cols <= LONG_HELD_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(dy.device):
            _group_norm_mean_product_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                product,
                product_2,
                mean_product,
                mean_product_2,
                n_rows,
                n_cols,
                dy.shape[-1],
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2)
        with device_guard(dy.device):
            _group_norm_mean_product_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                product,
                product_2,
                mean_product,
                mean_product_2,
                n_rows,
                n_cols,
                dy.shape[-1],
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    n_rows, n_cols = dy.shape[:-1].numel(), dy.shape[-1]
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS))
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(dy.device):
        _group_norm_dx_backward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            dy,
            x,
            weight,
            mean,
            rstd,
            mean_product,
            mean_product_2,
            dx,
            n_rows,
            n_cols,
            num_groups,
            dy.shape[-2] // num_groups,
            NEEDS_DX=needs_dx,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = weight.numel(), dy.shape[-3]
    dweight = torch.empty_like(weight) if needs_dweight else None
    dbias = torch.empty_like(weight, dtype=bias_dtype) if needs_dbias else None
    if needs_dweight or needs_dbias:
        BLOCK_ROWS, BLOCK_COLS, num_warps = column_settings(n_rows, n_cols)
        with device_guard(dy.device):
            _group_norm_dweight_dbias_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                row_dweight,
                row_dbias,
                dweight,
                dbias,
                n_rows,
                n_cols,
                NEEDS_DWEIGHT=needs_dweight,
                NEEDS_DBIAS=needs_dbias,
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
        y, x, weight, mean, rstd = group_norm_forward(x, weight, bias, num_groups, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.num_groups = num_groups
        ctx.bias_dtype = bias.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dweight, dbias = group_norm_backward(
            dy,
            x,
            weight,
            mean,
            rstd,
            ctx.num_groups,
            ctx.bias_dtype,
            needs_dx=ctx.needs_input_grad[0],
            needs_dweight=ctx.needs_input_grad[1],
            needs_dbias=ctx.needs_input_grad[2],
        )
        return dx, dweight, dbias, None, None
