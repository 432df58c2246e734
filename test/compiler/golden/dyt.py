"""Dynamic tanh, which stands in for a normalisation: y = gamma * tanh(alpha * x) + beta.

    y = gamma * squashed + beta, where squashed = tanh(alpha * x)
    dx = dsquashed * (1 - squashed * squashed) * alpha, where dsquashed = dy * gamma
    dalpha = sum[B, H, T](dsquashed * x * (1 - squashed * squashed))
    dgamma = sum[B, T](dy * squashed)
    dbeta = sum[B, T](dy)

Launch: a program takes BLOCK_ROWS rows of BLOCK_COLS columns; in backward it strides over rows and keeps its part of
dalpha, dgamma and dbeta.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import PIECE_COLS
from kernels.ops.utils import branchless_tanh
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import piece_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import sum_each
from kernels.ops.utils import sum_partials


@triton.jit
def _dyt_forward_kernel(
    x_ptr,
    alpha_ptr,
    gamma_ptr,
    beta_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    alpha = tl.load(alpha_ptr).to(tl.float32)
    gamma = tl.load(gamma_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)

    squashed = branchless_tanh(alpha * x)
    y = gamma * squashed + beta

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _dyt_backward_kernel(
    dy_ptr,
    x_ptr,
    alpha_ptr,
    gamma_ptr,
    dx_ptr,
    dalpha_partial_ptr,
    dgamma_partial_ptr,
    dbeta_partial_ptr,
    n_rows,
    n_cols,
    NEEDS_DX: tl.constexpr,
    NEEDS_DALPHA: tl.constexpr,
    NEEDS_DGAMMA: tl.constexpr,
    NEEDS_DBETA: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    col_mask = cols < n_cols
    alpha = tl.load(alpha_ptr).to(tl.float32)
    gamma = tl.load(gamma_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    dalpha = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    dgamma = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    dbeta = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

    for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        row_mask = rows < n_rows
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

        squashed = branchless_tanh(alpha * x)
        dsquashed = dy * gamma
        difference = 1.0 - squashed * squashed
        dx = dsquashed * difference * alpha

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask)
        if NEEDS_DALPHA:
            dalpha += dsquashed * x * difference
        if NEEDS_DGAMMA:
            dgamma += dy * squashed
        if NEEDS_DBETA:
            dbeta += dy

    if NEEDS_DALPHA:
        tl.store(dalpha_partial_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.sum(dalpha))
    if NEEDS_DGAMMA:
        tl.store(
            dgamma_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dgamma, axis=0, keep_dims=True), mask=col_mask
        )
    if NEEDS_DBETA:
        tl.store(
            dbeta_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dbeta, axis=0, keep_dims=True), mask=col_mask
        )


def dyt_forward(x, alpha, gamma, beta):
    """Returns y, x, alpha, gamma."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, alpha=alpha, gamma=gamma, beta=beta)
    check_shape("alpha", alpha, (1,))
    check_shape("gamma", gamma, (x.shape[-1],))
    check_shape("beta", beta, gamma.shape)
    x = x.contiguous()
    alpha = alpha.contiguous()
    gamma = gamma.contiguous()
    beta = beta.contiguous()
    y = torch.empty_like(
        x,
        dtype=torch.promote_types(
            torch.promote_types(torch.promote_types(x.dtype, alpha.dtype), gamma.dtype), beta.dtype
        ),
    )
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS))
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(x.device):
        _dyt_forward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            x, alpha, gamma, beta, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    return y, x, alpha, gamma


def dyt_backward(
    dy, x, alpha, gamma, beta_dtype, needs_dx=True, needs_dalpha=True, needs_dgamma=True, needs_dbeta=True
):
    """Returns dx, dalpha, dgamma, dbeta."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = piece_settings(n_cols, dy.element_size() + x.element_size())
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), cdiv(per_sm * sm_count(dy.device), max(1, n_pieces)))
    dalpha_partial = (
        torch.empty((n_programs * n_pieces, 1), dtype=torch.float32, device=dy.device) if needs_dalpha else None
    )
    partials = torch.empty((2, n_programs, n_cols), dtype=torch.float32, device=dy.device)
    dgamma_partial, dbeta_partial = partials
    with device_guard(dy.device):
        _dyt_backward_kernel[(n_programs, n_pieces)](
            dy,
            x,
            alpha,
            gamma,
            dx,
            dalpha_partial,
            dgamma_partial,
            dbeta_partial,
            n_rows,
            n_cols,
            NEEDS_DX=needs_dx,
            NEEDS_DALPHA=needs_dalpha,
            NEEDS_DGAMMA=needs_dgamma,
            NEEDS_DBETA=needs_dbeta,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            num_warps=num_warps,
        )
    dgamma, dbeta = sum_each(partials, gamma.dtype if needs_dgamma else None, beta_dtype if needs_dbeta else None)
    dalpha = sum_partials(dalpha_partial, alpha.dtype) if needs_dalpha else None
    return dx, dalpha, dgamma, dbeta


class LigerDytFunction(torch.autograd.Function):
    """y = dyt(x, alpha, gamma, beta)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        alpha: (1,).
        gamma: (H,).
        beta: (H,).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, alpha, gamma, beta):
        y, x, alpha, gamma = dyt_forward(x, alpha, gamma, beta)
        ctx.save_for_backward(x, alpha, gamma)
        ctx.beta_dtype = beta.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, alpha, gamma = ctx.saved_tensors
        dx, dalpha, dgamma, dbeta = dyt_backward(
            dy,
            x,
            alpha,
            gamma,
            ctx.beta_dtype,
            needs_dx=ctx.needs_input_grad[0],
            needs_dalpha=ctx.needs_input_grad[1],
            needs_dgamma=ctx.needs_input_grad[2],
            needs_dbeta=ctx.needs_input_grad[3],
        )
        return dx, dalpha, dgamma, dbeta
