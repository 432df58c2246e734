"""RMS normalisation, y = weight * x / rms(x), cast before the weight (llama), at the end (gemma) or not at all.

    y = weight * round(x_hat), where x_hat = x * rstd, rstd = rsqrt(sum[H](x * x) / H + eps)
    dx = (dx_hat - x_hat * (sum[H](dx_hat * x_hat) / H)) * rstd, where dx_hat = dy * weight
    dweight = sum[B, T](dy * round(x_hat))
    casting_mode="gemma":
    y = weight * x_hat
    dweight = sum[B, T](dy * x_hat)
    casting_mode="none":
    y = weight * x_hat
    dweight = sum[B, T](dy * x_hat)

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
from kernels.ops.utils import check_static
from kernels.ops.utils import device_guard
from kernels.ops.utils import persistent_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import sum_partials
from kernels.ops.utils import wide_settings


@triton.jit
def _casting_rms_norm_forward_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    eps: tl.constexpr,
    casting_mode: tl.constexpr,
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
    weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)

    rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / n_cols + eps)
    x_hat = x * rstd
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)
    if casting_mode == "llama":
        y = weight * x_hat.to(x_ptr.dtype.element_ty).to(tl.float32)
    else:
        y = weight * x_hat

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _casting_rms_norm_forward_wide_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    n_rows,
    n_cols: tl.constexpr,
    eps: tl.constexpr,
    casting_mode: tl.constexpr,
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

        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)

        x_hat = x * rstd
        if casting_mode == "llama":
            y = weight * x_hat.to(x_ptr.dtype.element_ty).to(tl.float32)
        else:
            y = weight * x_hat

        tl.store(y_ptr + offsets, y, mask=mask, eviction_policy="evict_first")

    tl.store(rstd_ptr + rows, rstd, mask=row_mask)


@triton.jit
def _casting_rms_norm_backward_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    dweight_partial_ptr,
    n_rows,
    n_cols,
    casting_mode: tl.constexpr,
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
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)

        x_hat = x * rstd
        dx_hat = dy * weight
        mean_dot = tl.sum(dx_hat * x_hat, axis=1, keep_dims=True) / n_cols
        if RELOAD:  # what did not stay in registers
            weight = tl.load(weight_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            x_hat = x * rstd
            dx_hat = dy * weight
        dx = (dx_hat - x_hat * mean_dot) * rstd

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask)
        if NEEDS_DWEIGHT:
            if casting_mode == "llama":
                dweight += dy * x_hat.to(x_ptr.dtype.element_ty).to(tl.float32)
            else:
                dweight += dy * x_hat

    if NEEDS_DWEIGHT:
        tl.store(
            dweight_partial_ptr + tl.program_id(0) * n_cols + cols,
            tl.sum(dweight, axis=0, keep_dims=True),
            mask=col_mask,
        )


def casting_rms_norm_forward(x, weight, eps, casting_mode):
    """Returns y, x, weight, rstd."""
    check_static("casting_mode", casting_mode, "llama", "gemma", "none")
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, weight=weight)
    check_shape("weight", weight, (x.shape[-1],))
    x = x.contiguous()
    weight = weight.contiguous()
    if casting_mode == "gemma":
        y = torch.empty_like(x)
    else:
        y = torch.empty_like(x, dtype=torch.promote_types(x.dtype, weight.dtype))
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_cols <= WIDE_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, late=True)
        with device_guard(x.device):
            _casting_rms_norm_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                y,
                rstd,
                n_rows,
                n_cols,
                eps=eps,
                casting_mode=casting_mode,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = wide_settings(n_cols)
        with device_guard(x.device):
            _casting_rms_norm_forward_wide_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x,
                weight,
                y,
                rstd,
                n_rows,
                n_cols,
                eps=eps,
                casting_mode=casting_mode,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return y, x, weight, rstd


def casting_rms_norm_backward(dy, x, weight, rstd, casting_mode, needs_dx=True, needs_dweight=True):
    """Returns dx, dweight."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = persistent_settings(
        n_cols, dy.element_size() + x.element_size(), sums=1
    )
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), per_sm * sm_count(dy.device))
    dweight_partial = (
        torch.empty((n_programs, n_cols), dtype=torch.float32, device=dy.device) if needs_dweight else None
    )
    with device_guard(dy.device):
        _casting_rms_norm_backward_kernel[(n_programs,)](
            dy,
            x,
            weight,
            rstd,
            dx,
            dweight_partial,
            n_rows,
            n_cols,
            casting_mode=casting_mode,
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


class LigerCastingRmsNormFunction(torch.autograd.Function):
    """y = casting_rms_norm(x, weight, eps, casting_mode)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        weight: (H,).
        casting_mode: "llama", "gemma" or "none".

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, weight, eps, casting_mode):
        y, x, weight, rstd = casting_rms_norm_forward(x, weight, eps, casting_mode)
        ctx.save_for_backward(x, weight, rstd)
        ctx.casting_mode = casting_mode
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        dx, dweight = casting_rms_norm_backward(
            dy,
            x,
            weight,
            rstd,
            ctx.casting_mode,
            needs_dx=ctx.needs_input_grad[0],
            needs_dweight=ctx.needs_input_grad[1],
        )
        return dx, dweight, None, None
