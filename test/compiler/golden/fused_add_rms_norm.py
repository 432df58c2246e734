"""Residual addition, then RMS normalisation: summed = x + residual, y = weight * summed / rms(summed).

    y = weight * summed_hat, where summed_hat = round(summed * rstd), summed = round(x + residual), rstd =
        rsqrt(sum[H](summed * summed) / H + eps)
    dx = dsummed + (dsummed_hat - summed * rstd * (sum[H](dsummed_hat * (summed * rstd)) / H)) * rstd, where
        dsummed_hat = dy * weight
    dresidual = dx
    dweight = sum[B, T](dy * summed_hat)

Launch: a program holds BLOCK_ROWS whole rows; in backward it strides over rows and keeps its part of dweight.
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
from kernels.ops.utils import sum_partials


@triton.jit
def _fused_add_rms_norm_forward_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    summed_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
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

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if not LATE:
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)

    summed = (x + residual).to(summed_ptr.dtype.element_ty).to(tl.float32)
    tl.store(summed_ptr + offsets, summed, mask=mask)
    rstd = tl.rsqrt(tl.sum(summed * summed, axis=1, keep_dims=True) / n_cols + eps)
    summed_hat = (summed * rstd).to(summed_ptr.dtype.element_ty).to(tl.float32)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)
    if LATE:
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    y = weight * summed_hat

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _fused_add_rms_norm_backward_kernel(
    dy_ptr,
    dsummed_ptr,
    weight_ptr,
    summed_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_partial_ptr,
    n_rows,
    n_cols,
    NEEDS_DX: tl.constexpr,
    NEEDS_DWEIGHT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    RELOAD: tl.constexpr,
):
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    if not RELOAD:
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

    for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        row_mask = rows < n_rows
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols

        if RELOAD:
            weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dsummed = tl.load(dsummed_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        summed = tl.load(summed_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

        summed_hat = summed * rstd
        dsummed_hat = dy * weight
        mean_dot = tl.sum(dsummed_hat * summed_hat, axis=1, keep_dims=True) / n_cols
        if RELOAD:  # what did not stay in registers
            weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dsummed = tl.load(dsummed_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            summed = tl.load(summed_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            summed_hat = summed * rstd
            dsummed_hat = dy * weight
        dx = dsummed + (dsummed_hat - summed_hat * mean_dot) * rstd

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask)
        if NEEDS_DWEIGHT:
            dweight += dy * summed_hat.to(summed_ptr.dtype.element_ty).to(tl.float32)

    if NEEDS_DWEIGHT:
        tl.store(
            dweight_partial_ptr + tl.program_id(0) * n_cols + cols,
            tl.sum(dweight, axis=0, keep_dims=True),
            mask=col_mask,
        )


def fused_add_rms_norm_forward(x, residual, weight, eps):
    """Returns y, summed, weight, rstd."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, residual=residual, weight=weight)
    check_shape("residual", residual, x.shape)
    check_shape("weight", weight, (x.shape[-1],))
    x = x.contiguous()
    residual = residual.contiguous()
    weight = weight.contiguous()
    y = torch.empty_like(x, dtype=torch.promote_types(torch.promote_types(x.dtype, residual.dtype), weight.dtype))
    summed = torch.empty_like(x, dtype=torch.promote_types(x.dtype, residual.dtype))
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
    with device_guard(x.device):
        _fused_add_rms_norm_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            x,
            residual,
            weight,
            y,
            summed,
            rstd,
            n_rows,
            n_cols,
            eps=eps,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            LATE=n_cols > WIDE_ROW,
            num_warps=num_warps,
        )
    return y, summed, weight, rstd


def fused_add_rms_norm_backward(dy, dsummed, weight, summed, rstd, needs_dx=True, needs_dweight=True):
    """Returns dx, dweight."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dsummed = dsummed.contiguous()
    dx = torch.empty_like(dsummed) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = persistent_settings(
        n_cols, dy.element_size() + dsummed.element_size() + summed.element_size(), sums=1
    )
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), per_sm * sm_count(dy.device))
    dweight_partial = (
        torch.empty((n_programs, n_cols), dtype=torch.float32, device=dy.device) if needs_dweight else None
    )
    with device_guard(dy.device):
        _fused_add_rms_norm_backward_kernel[(n_programs,)](
            dy,
            dsummed,
            weight,
            summed,
            rstd,
            dx,
            dweight_partial,
            n_rows,
            n_cols,
            NEEDS_DX=needs_dx,
            NEEDS_DWEIGHT=needs_dweight,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            RELOAD=n_cols > WIDE_ROW,
            num_warps=num_warps,
        )
    dweight = sum_partials(dweight_partial, weight.dtype) if needs_dweight else None
    return dx, dweight


class LigerFusedAddRmsNormFunction(torch.autograd.Function):
    """y, summed = fused_add_rms_norm(x, residual, weight, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        residual: (B, T, H).
        weight: (H,).

    Returns:
        y: (B, T, H).
        summed: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        y, summed, weight, rstd = fused_add_rms_norm_forward(x, residual, weight, eps)
        ctx.save_for_backward(weight, summed, rstd)
        return y, summed

    @staticmethod
    @once_differentiable
    def backward(ctx, dy, dsummed):
        weight, summed, rstd = ctx.saved_tensors
        dx, dweight = fused_add_rms_norm_backward(
            dy,
            dsummed,
            weight,
            summed,
            rstd,
            needs_dx=ctx.needs_input_grad[0] or ctx.needs_input_grad[1],
            needs_dweight=ctx.needs_input_grad[2],
        )
        return dx, dx, dweight, None
