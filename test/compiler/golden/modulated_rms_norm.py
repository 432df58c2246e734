"""RMS normalisation that a condition modulates: y = weight * x / rms(x) * (1 + scale), one scale a sample.

    y = weight * x_hat * (scale + 1), where x_hat = x * rstd, rstd = rsqrt(sum[H](x * x) / H + eps)
    dx = (dx_hat - x_hat * (sum[H](dx_hat * x_hat) / H)) * rstd, where dx_hat = dy * (scale + 1) * weight
    dweight = sum[B, T](dy * x_hat * (scale + 1))
    dscale = sum[T](dy * x_hat * weight)

Launch: a program holds BLOCK_ROWS whole rows; in backward it strides over the rows of each B in turn and keeps its
part of dweight and dscale.
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
from kernels.ops.utils import next_power_of_2
from kernels.ops.utils import persistent_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import sum_partials
from kernels.ops.utils import wide_settings


@triton.jit
def _modulated_rms_norm_forward_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    y_ptr,
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
    scale_offsets = rows // n_T * n_cols + cols

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    scale = tl.load(scale_ptr + scale_offsets, mask=mask, other=0.0).to(tl.float32)

    rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / n_cols + eps)
    x_hat = x * rstd
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)
    y = weight * x_hat * (scale + 1.0)

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _modulated_rms_norm_forward_wide_kernel(
    x_ptr,
    weight_ptr,
    scale_ptr,
    y_ptr,
    rstd_ptr,
    n_rows,
    n_cols: tl.constexpr,
    n_T,
    eps: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = (rows < n_rows) | (BLOCK_ROWS == 1)

    sum_of_squares_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & ((cols < n_cols) | (n_cols % BLOCK_COLS == 0))
        offsets = rows * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        sum_of_squares_lanes += x * x
    sum_of_squares = tl.sum(sum_of_squares_lanes, axis=1, keep_dims=True)
    rstd = tl.rsqrt(sum_of_squares / n_cols + eps)

    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        col_mask = (cols < n_cols) | (n_cols % BLOCK_COLS == 0)
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols
        scale_offsets = rows // n_T * n_cols + cols

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        scale = tl.load(scale_ptr + scale_offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        x_hat = x * rstd
        y = weight * x_hat * (scale + 1.0)

        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")

    tl.store(rstd_ptr + rows, rstd, mask=row_mask)


@triton.jit
def _modulated_rms_norm_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    scale_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_partial_ptr,
    dscale_partial_ptr,
    n_rows,
    n_cols,
    n_T,
    NEEDS_DX: tl.constexpr,
    NEEDS_DWEIGHT: tl.constexpr,
    NEEDS_DSCALE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    RELOAD: tl.constexpr,
):
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    col_mask = cols < n_cols
    if not RELOAD:
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)

    for number in range(tl.program_id(0), n_rows // n_T, tl.num_programs(0)):
        group = tl.cast(number, tl.int64)
        scale_offsets = group * n_cols + cols
        if not RELOAD:
            scale = tl.load(scale_ptr + scale_offsets, mask=col_mask, other=0.0).to(tl.float32)
            shifted = scale + 1.0
        product_sum = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

        for block in tl.range(tl.program_id(1), tl.cdiv(n_T, BLOCK_ROWS), tl.num_programs(1), num_stages=NUM_STAGES):
            member = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
            rows = group * n_T + member
            row_mask = member < n_T
            mask = row_mask & col_mask
            offsets = rows * n_cols + cols

            if RELOAD:
                weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
                scale = tl.load(scale_ptr + scale_offsets, mask=col_mask, other=0.0).to(tl.float32)
                shifted = scale + 1.0
            dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
            rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

            x_hat = x * rstd
            dx_hat = dy * shifted * weight
            mean_dot = tl.sum(dx_hat * x_hat, axis=1, keep_dims=True) / n_cols
            if RELOAD:  # what did not stay in registers
                weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(
                    tl.float32
                )
                scale = tl.load(scale_ptr + scale_offsets, mask=col_mask, other=0.0, eviction_policy="evict_last").to(
                    tl.float32
                )
                shifted = scale + 1.0
                dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
                x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
                x_hat = x * rstd
                dx_hat = dy * shifted * weight
            dx = (dx_hat - x_hat * mean_dot) * rstd
            product = dy * x_hat

            if NEEDS_DX:
                tl.store(dx_ptr + offsets, dx, mask=mask)
            if NEEDS_DWEIGHT or NEEDS_DSCALE:
                product_sum += product

        if RELOAD:
            weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            scale = tl.load(scale_ptr + scale_offsets, mask=col_mask, other=0.0, eviction_policy="evict_last").to(
                tl.float32
            )
            shifted = scale + 1.0
        if NEEDS_DWEIGHT:
            tl.store(
                dweight_partial_ptr + (group * tl.num_programs(1) + tl.program_id(1)) * n_cols + cols,
                tl.sum(product_sum, axis=0, keep_dims=True) * shifted,
                mask=col_mask,
            )
        if NEEDS_DSCALE:
            tl.store(
                dscale_partial_ptr + (group * tl.num_programs(1) + tl.program_id(1)) * n_cols + cols,
                tl.sum(product_sum, axis=0, keep_dims=True) * weight,
                mask=col_mask,
            )


def modulated_rms_norm_forward(x, weight, scale, eps):
    """Returns y, x, weight, scale, rstd."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, weight=weight, scale=scale)
    check_shape("weight", weight, (x.shape[-1],))
    check_shape("scale", scale, (*x.shape[:-2], 1, x.shape[-1]))
    x = x.contiguous()
    weight = weight.contiguous()
    scale = scale.contiguous()
    y = torch.empty_like(x)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= WIDE_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, late=True, shared=2)
        with device_guard(x.device):
            _modulated_rms_norm_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                scale,
                y,
                rstd,
                n_rows,
                n_cols,
                x.shape[-2],
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = wide_settings(n_cols)
        with device_guard(x.device):
            _modulated_rms_norm_forward_wide_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                scale,
                y,
                rstd,
                n_rows,
                n_cols,
                x.shape[-2],
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return y, x, weight, scale, rstd


def modulated_rms_norm_backward(dy, x, weight, scale, rstd, needs_dx=True, needs_dweight=True, needs_dscale=True):
    """Returns dx, dweight, dscale."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = persistent_settings(
        n_cols, dy.element_size() + x.element_size(), sums=1, shared=3, max_rows=next_power_of_2(dy.shape[-2])
    )
    n_groups = scale.shape[:-1].numel()
    n_programs = per_sm * sm_count(dy.device)
    n_splits = min(cdiv(dy.shape[-2], BLOCK_ROWS), max(1, n_programs // max(1, n_groups)))
    n_programs = min(n_groups, n_programs)
    dweight_partial = (
        torch.empty((n_groups * n_splits, n_cols), dtype=torch.float32, device=dy.device) if needs_dweight else None
    )
    dscale_partial = (
        torch.empty((n_groups, n_splits, n_cols), dtype=torch.float32, device=dy.device) if needs_dscale else None
    )
    with device_guard(dy.device):
        _modulated_rms_norm_backward_kernel[(n_programs, n_splits)](
            dy,
            x,
            weight,
            scale,
            rstd,
            dx,
            dweight_partial,
            dscale_partial,
            n_rows,
            n_cols,
            dy.shape[-2],
            NEEDS_DX=needs_dx,
            NEEDS_DWEIGHT=needs_dweight,
            NEEDS_DSCALE=needs_dscale,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            RELOAD=n_cols > WIDE_ROW,
            num_warps=num_warps,
        )
    dweight = sum_partials(dweight_partial, weight.dtype) if needs_dweight else None
    dscale = sum_partials(dscale_partial, scale.dtype).view(scale.shape) if needs_dscale else None
    return dx, dweight, dscale


class LigerModulatedRmsNormFunction(torch.autograd.Function):
    """y = modulated_rms_norm(x, weight, scale, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        weight: (H,).
        scale: (B, 1, H).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, weight, scale, eps):
        y, x, weight, scale, rstd = modulated_rms_norm_forward(x, weight, scale, eps)
        ctx.save_for_backward(x, weight, scale, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, scale, rstd = ctx.saved_tensors
        dx, dweight, dscale = modulated_rms_norm_backward(
            dy,
            x,
            weight,
            scale,
            rstd,
            needs_dx=ctx.needs_input_grad[0],
            needs_dweight=ctx.needs_input_grad[1],
            needs_dscale=ctx.needs_input_grad[2],
        )
        return dx, dweight, dscale, None
