"""Attention over the outputs of earlier layers: y = sum over layers of softmax(query . norm(values)) * values.

    y = sum[L](shares * values), where shares = numerator / denominator, numerator = exp(shifted), denominator =
        sum[L](numerator), shifted = scores - row_max, scores = sum[H](keys * query), row_max = max[L](scores), keys
        = values * rstd * weight, rstd = rsqrt(sum[H](values * values) / H + eps)
    dvalues = (dy + rstd * (dshares - sum_product) * (query * weight) - values * (product_2 * (dshares -
        sum_product) / H)) * shares, where dshares = sum[H](values * dy), sum_product = sum[L](product), product_2 =
        rstd * rstd * rstd * sum[H](values * (query * weight)), product = shares * dshares
    dquery = sum[B, L, T](keys * dscores), where dscores = shares * (dshares - sum_product)
    dweight = sum[B, L, T](query * (values * (shares * rstd * (dshares - sum_product))))

Launch: a program holds BLOCK_ROWS whole rows; in backward it strides over rows and keeps its part of dquery and
dweight.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import column_settings
from kernels.ops.utils import device_guard
from kernels.ops.utils import exp_or_zero
from kernels.ops.utils import piece_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import strided_settings
from kernels.ops.utils import sum_each


@triton.jit
def _attn_res_rstd_forward_kernel(
    values_ptr,
    query_ptr,
    weight_ptr,
    rstd_ptr,
    scores_ptr,
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

    values = tl.load(values_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    query = tl.load(query_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)

    rstd = tl.rsqrt(tl.sum(values * values, axis=1, keep_dims=True) / n_cols + eps)
    keys = values * rstd * weight
    scores = tl.sum(keys * query, axis=1, keep_dims=True)

    tl.store(rstd_ptr + rows, rstd, mask=row_mask)
    tl.store(scores_ptr + rows, scores, mask=row_mask)


@triton.jit
def _attn_res_shares_forward_kernel(
    scores_ptr,
    shares_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    scores_offsets = cols.to(tl.int64) * n_rows + rows

    scores = tl.load(scores_ptr + scores_offsets, mask=mask, other=float("-inf"))

    row_max = tl.max(scores, axis=1, keep_dims=True)
    shifted = scores - row_max
    numerator = exp_or_zero(shifted)
    denominator = tl.sum(numerator, axis=1, keep_dims=True)
    shares = numerator / denominator

    tl.store(shares_ptr + scores_offsets, shares, mask=mask)


@triton.jit
def _attn_res_shares_forward_looped_kernel(
    scores_ptr,
    shares_ptr,
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
        scores_offsets = cols.to(tl.int64) * n_rows + rows

        scores = tl.load(scores_ptr + scores_offsets, mask=mask, other=float("-inf"), eviction_policy="evict_last")

        new_max = tl.maximum(row_max, tl.max(scores, axis=1, keep_dims=True))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # no NaN while all is -inf
        denominator = denominator * exp_or_zero(row_max - shift)
        denominator += tl.sum(exp_or_zero(scores - shift), axis=1, keep_dims=True)
        row_max = new_max

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        scores_offsets = cols.to(tl.int64) * n_rows + rows

        scores = tl.load(scores_ptr + scores_offsets, mask=mask, other=float("-inf"), eviction_policy="evict_first")

        shifted = scores - row_max
        numerator = exp_or_zero(shifted)
        shares = numerator / denominator

        tl.store(shares_ptr + scores_offsets, shares, mask=mask, eviction_policy="evict_first")


@triton.jit
def _attn_res_y_forward_kernel(
    values_ptr,
    shares_ptr,
    y_ptr,
    n_rows,
    n_cols,
    n_B,
    n_T,
    n_H,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    y = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        y_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            values_offsets = cols.to(tl.int64) * n_rows + rows
            shares_offsets = cols.to(tl.int64) * (n_T * n_B) + rows // n_H

            values = tl.load(values_ptr + values_offsets, mask=mask, other=0.0).to(tl.float32)
            shares = tl.load(shares_ptr + shares_offsets, mask=mask, other=0.0)

            y_lanes += shares * values
        y += tl.sum(y_lanes, axis=1, keep_dims=True)

    tl.store(y_ptr + rows, y, mask=row_mask)


@triton.jit
def _attn_res_dshares_backward_kernel(
    dy_ptr,
    values_ptr,
    query_ptr,
    weight_ptr,
    rstd_ptr,
    shares_ptr,
    dshares_ptr,
    product_ptr,
    product_2_ptr,
    n_rows,
    n_cols,
    n_B,
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
    dy_offsets = rows % (n_B * n_T) * n_cols + cols

    dy = tl.load(dy_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)
    values = tl.load(values_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    query = tl.load(query_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)
    shares = tl.load(shares_ptr + rows, mask=row_mask, other=0.0)

    dshares = tl.sum(values * dy, axis=1, keep_dims=True)
    product_2 = rstd * rstd * rstd * tl.sum(values * (query * weight), axis=1, keep_dims=True)
    product = shares * dshares

    tl.store(dshares_ptr + rows, dshares, mask=row_mask)
    tl.store(product_2_ptr + rows, product_2, mask=row_mask)
    tl.store(product_ptr + rows, product, mask=row_mask)


@triton.jit
def _attn_res_dvalues_backward_kernel(
    dy_ptr,
    values_ptr,
    query_ptr,
    weight_ptr,
    rstd_ptr,
    shares_ptr,
    dshares_ptr,
    sum_product_ptr,
    product_2_ptr,
    dvalues_ptr,
    dquery_partial_ptr,
    dweight_partial_ptr,
    n_rows,
    n_cols,
    n_B,
    n_T,
    NEEDS_DVALUES: tl.constexpr,
    NEEDS_DQUERY: tl.constexpr,
    NEEDS_DWEIGHT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    col_mask = cols < n_cols
    query = tl.load(query_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    dquery = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    dweight = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

    for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        row_mask = rows < n_rows
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols
        dy_offsets = rows % (n_B * n_T) * n_cols + cols
        sum_product_offsets = rows % (n_B * n_T)

        dy = tl.load(dy_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)
        values = tl.load(values_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)
        shares = tl.load(shares_ptr + rows, mask=row_mask, other=0.0)
        dshares = tl.load(dshares_ptr + rows, mask=row_mask, other=0.0)
        sum_product = tl.load(sum_product_ptr + sum_product_offsets, mask=row_mask, other=0.0)
        product_2 = tl.load(product_2_ptr + rows, mask=row_mask, other=0.0)

        difference = dshares - sum_product
        ratio = product_2 * difference / n_cols
        difference_2 = dy + rstd * difference * (query * weight) - values * ratio
        dvalues = difference_2 * shares
        keys = values * rstd * weight
        dscores = shares * difference
        product = shares * rstd * difference

        if NEEDS_DVALUES:
            tl.store(dvalues_ptr + offsets, dvalues, mask=mask)
        if NEEDS_DQUERY:
            dquery += keys * dscores
        if NEEDS_DWEIGHT:
            dweight += query * (values * product)

    if NEEDS_DQUERY:
        tl.store(
            dquery_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dquery, axis=0, keep_dims=True), mask=col_mask
        )
    if NEEDS_DWEIGHT:
        tl.store(
            dweight_partial_ptr + tl.program_id(0) * n_cols + cols,
            tl.sum(dweight, axis=0, keep_dims=True),
            mask=col_mask,
        )


@triton.jit
def _attn_res_sum_product_backward_kernel(
    product_ptr,
    sum_product_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    sum_product = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        sum_product_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            product_offsets = cols.to(tl.int64) * n_rows + rows

            product = tl.load(product_ptr + product_offsets, mask=mask, other=0.0)

            sum_product_lanes += product
        sum_product += tl.sum(sum_product_lanes, axis=1, keep_dims=True)

    tl.store(sum_product_ptr + rows, sum_product, mask=row_mask)


def attn_res_forward(values, query, weight, eps):
    """Returns y, values, query, weight, rstd, shares."""
    n_rows, n_cols = row_shape(values)
    check_floating(values=values, query=query, weight=weight)
    check_shape("query", query, (values.shape[-1],))
    check_shape("weight", weight, query.shape)
    check_rank("values", values, 4)
    values = values.contiguous()
    query = query.contiguous()
    weight = weight.contiguous()
    rstd = torch.empty(n_rows, dtype=torch.float32, device=values.device)
    scores = torch.empty(n_rows, dtype=torch.float32, device=values.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(values.device):
        _attn_res_rstd_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            values,
            query,
            weight,
            rstd,
            scores,
            n_rows,
            n_cols,
            eps=eps,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = values.shape[-3] * values.shape[-2], values.shape[-4]
    shares = torch.empty(values.shape[:-1].numel(), dtype=torch.float32, device=values.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = strided_settings(n_cols)
        with device_guard(values.device):
            _attn_res_shares_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                scores, shares, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = column_settings(n_rows, n_cols)
        with device_guard(values.device):
            _attn_res_shares_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                scores, shares, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    n_rows, n_cols = values.shape[-3] * values.shape[-2] * values.shape[-1], values.shape[-4]
    y = torch.empty((values.shape[-3], values.shape[-2], values.shape[-1]), dtype=values.dtype, device=values.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = column_settings(n_rows, n_cols)
    with device_guard(values.device):
        _attn_res_y_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            values,
            shares,
            y,
            n_rows,
            n_cols,
            values.shape[-3],
            values.shape[-2],
            values.shape[-1],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return y, values, query, weight, rstd, shares


def attn_res_backward(
    dy, values, query, weight, rstd, shares, needs_dvalues=True, needs_dquery=True, needs_dweight=True
):
    """Returns dvalues, dquery, dweight."""
    n_rows, n_cols = row_shape(values)
    dy = dy.contiguous()
    dshares = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    product = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    product_2 = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(dy.device):
        _attn_res_dshares_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            dy,
            values,
            query,
            weight,
            rstd,
            shares,
            dshares,
            product,
            product_2,
            n_rows,
            n_cols,
            dy.shape[-3],
            dy.shape[-2],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = dy.shape[:-1].numel(), values.shape[-4]
    sum_product = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = column_settings(n_rows, n_cols)
    with device_guard(dy.device):
        _attn_res_sum_product_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            product, sum_product, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    n_rows, n_cols = row_shape(values)
    dvalues = torch.empty_like(values) if needs_dvalues else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = piece_settings(
        n_cols, dy.element_size() + values.element_size()
    )
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), cdiv(per_sm * sm_count(dy.device), max(1, n_pieces)))
    partials = torch.empty((2, n_programs, n_cols), dtype=torch.float32, device=dy.device)
    dquery_partial, dweight_partial = partials
    with device_guard(dy.device):
        _attn_res_dvalues_backward_kernel[(n_programs, n_pieces)](
            dy,
            values,
            query,
            weight,
            rstd,
            shares,
            dshares,
            sum_product,
            product_2,
            dvalues,
            dquery_partial,
            dweight_partial,
            n_rows,
            n_cols,
            dy.shape[-3],
            dy.shape[-2],
            NEEDS_DVALUES=needs_dvalues,
            NEEDS_DQUERY=needs_dquery,
            NEEDS_DWEIGHT=needs_dweight,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            num_warps=num_warps,
        )
    dquery, dweight = sum_each(partials, query.dtype if needs_dquery else None, weight.dtype if needs_dweight else None)
    return dvalues, dquery, dweight


class LigerAttnResFunction(torch.autograd.Function):
    """y = attn_res(values, query, weight, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        values: (L, B, T, H).
        query: (H,).
        weight: (H,).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, values, query, weight, eps):
        y, values, query, weight, rstd, shares = attn_res_forward(values, query, weight, eps)
        ctx.save_for_backward(values, query, weight, rstd, shares)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        values, query, weight, rstd, shares = ctx.saved_tensors
        dvalues, dquery, dweight = attn_res_backward(
            dy,
            values,
            query,
            weight,
            rstd,
            shares,
            needs_dvalues=ctx.needs_input_grad[0],
            needs_dquery=ctx.needs_input_grad[1],
            needs_dweight=ctx.needs_input_grad[2],
        )
        return dvalues, dquery, dweight, None
