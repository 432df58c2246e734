"""Global response normalisation: y = gamma * x * response + beta + x, response = norm / (mean(norm) + eps).

    y = gamma * (x * response) + beta + x, where response = norm / shifted, norm = sqrt(sum[T](x * x) + eps),
        shifted = sum[C](norm) / C + eps
    dx = dy * (1 + response * gamma) + x * ((dresponse - mean_product) / norm) / shifted, where dresponse =
        sum[T](dy * x) * gamma, mean_product = sum[C](product) / C, product = response * sum[T](dy * x) * gamma
    dgamma = sum[B](sum[T](dy * x * response))
    dbeta = sum[B](sum[T](dy))

Launch: a program takes BLOCK_ROWS rows, block of columns by block; in backward it strides over rows and keeps its part
of dgamma and dbeta.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import PIECE_COLS
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import column_settings
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import piece_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import sum_each


@triton.jit
def _global_response_norm_shifted_forward_kernel(
    norm_ptr,
    shifted_ptr,
    response_ptr,
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

    norm = tl.load(norm_ptr + offsets, mask=mask, other=0.0)

    shifted = tl.sum(norm, axis=1, keep_dims=True) / n_cols + eps
    response = norm / shifted

    tl.store(shifted_ptr + rows, shifted, mask=row_mask)
    tl.store(response_ptr + offsets, response, mask=mask)


@triton.jit
def _global_response_norm_y_forward_kernel(
    x_ptr,
    gamma_ptr,
    beta_ptr,
    response_ptr,
    y_ptr,
    n_rows,
    n_cols,
    n_T,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols
    response_offsets = rows // n_T * n_cols + cols

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    gamma = tl.load(gamma_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    response = tl.load(response_ptr + response_offsets, mask=mask, other=0.0)

    y = gamma * (x * response) + beta + x

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _global_response_norm_norm_forward_kernel(
    x_ptr,
    norm_ptr,
    n_rows,
    n_cols,
    n_C,
    eps: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    sum_of_squares = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        sum_of_squares_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            x_offsets = rows // n_C * (n_C * n_cols) + cols.to(tl.int64) * n_C + rows % n_C

            x = tl.load(x_ptr + x_offsets, mask=mask, other=0.0).to(tl.float32)

            sum_of_squares_lanes += x * x
        sum_of_squares += tl.sum(sum_of_squares_lanes, axis=1, keep_dims=True)

    norm = tl.sqrt(sum_of_squares + eps)
    tl.store(norm_ptr + rows, norm, mask=row_mask)


@triton.jit
def _global_response_norm_shifted_forward_looped_kernel(
    norm_ptr,
    shifted_ptr,
    response_ptr,
    n_rows,
    n_cols,
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

        norm = tl.load(norm_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last")

        total += tl.sum(norm, axis=1, keep_dims=True)
    shifted = total / n_cols + eps

    # Backwards, since the last block is the likeliest to be in the cache.
    n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
    for block in range(n_blocks):
        cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        norm = tl.load(norm_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")

        response = norm / shifted

        tl.store(response_ptr + offsets, response, mask=mask, eviction_policy="evict_first")

    tl.store(shifted_ptr + rows, shifted, mask=row_mask)


@triton.jit
def _global_response_norm_mean_product_backward_kernel(
    product_ptr,
    mean_product_ptr,
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

    product = tl.load(product_ptr + offsets, mask=mask, other=0.0)

    mean_product = tl.sum(product, axis=1, keep_dims=True) / n_cols

    tl.store(mean_product_ptr + rows, mean_product, mask=row_mask)


@triton.jit
def _global_response_norm_dx_backward_kernel(
    dy_ptr,
    x_ptr,
    gamma_ptr,
    norm_ptr,
    shifted_ptr,
    response_ptr,
    dresponse_ptr,
    mean_product_ptr,
    dx_ptr,
    dgamma_partial_ptr,
    dbeta_partial_ptr,
    n_rows,
    n_cols,
    n_T,
    NEEDS_DX: tl.constexpr,
    NEEDS_DGAMMA: tl.constexpr,
    NEEDS_DBETA: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    col_mask = cols < n_cols
    gamma = tl.load(gamma_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    dgamma = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
    dbeta = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

    for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        row_mask = rows < n_rows
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols
        norm_offsets = rows // n_T * n_cols + cols
        shifted_offsets = rows // n_T

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        norm = tl.load(norm_ptr + norm_offsets, mask=mask, other=0.0)
        shifted = tl.load(shifted_ptr + shifted_offsets, mask=row_mask, other=0.0)
        response = tl.load(response_ptr + norm_offsets, mask=mask, other=0.0)
        dresponse = tl.load(dresponse_ptr + norm_offsets, mask=mask, other=0.0)
        mean_product = tl.load(mean_product_ptr + shifted_offsets, mask=row_mask, other=0.0)

        dx = dy * (1.0 + response * gamma) + x * ((dresponse - mean_product) / norm) / shifted

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask)
        if NEEDS_DGAMMA:
            dgamma += dy * x * response
        if NEEDS_DBETA:
            dbeta += dy

    if NEEDS_DGAMMA:
        tl.store(
            dgamma_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dgamma, axis=0, keep_dims=True), mask=col_mask
        )
    if NEEDS_DBETA:
        tl.store(
            dbeta_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dbeta, axis=0, keep_dims=True), mask=col_mask
        )


@triton.jit
def _global_response_norm_dresponse_backward_kernel(
    dy_ptr,
    x_ptr,
    gamma_ptr,
    response_ptr,
    dresponse_ptr,
    product_ptr,
    n_rows,
    n_cols,
    n_C,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    gamma_offsets = rows % n_C
    gamma = tl.load(gamma_ptr + gamma_offsets, mask=row_mask, other=0.0).to(tl.float32)
    response = tl.load(response_ptr + rows, mask=row_mask, other=0.0)

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dot_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            dy_offsets = rows // n_C * (n_C * n_cols) + cols.to(tl.int64) * n_C + rows % n_C

            dy = tl.load(dy_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)
            x = tl.load(x_ptr + dy_offsets, mask=mask, other=0.0).to(tl.float32)

            dot_lanes += dy * x
        dot += tl.sum(dot_lanes, axis=1, keep_dims=True)

    dresponse = dot * gamma
    product = response * dot * gamma
    tl.store(dresponse_ptr + rows, dresponse, mask=row_mask)
    tl.store(product_ptr + rows, product, mask=row_mask)


@triton.jit
def _global_response_norm_mean_product_backward_looped_kernel(
    product_ptr,
    mean_product_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        dot_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            offsets = rows * n_cols + cols

            product = tl.load(product_ptr + offsets, mask=mask, other=0.0)

            dot_lanes += product
        dot += tl.sum(dot_lanes, axis=1, keep_dims=True)

    mean_product = dot / n_cols
    tl.store(mean_product_ptr + rows, mean_product, mask=row_mask)


def global_response_norm_forward(x, gamma, beta, eps):
    """Returns y, x, gamma, norm, shifted, response."""
    check_floating(x=x, gamma=gamma, beta=beta)
    check_shape("gamma", gamma, (x.shape[-1],))
    check_shape("beta", beta, gamma.shape)
    check_rank("x", x, 3)
    x = x.contiguous()
    gamma = gamma.contiguous()
    beta = beta.contiguous()
    n_rows, n_cols = x.shape[-3] * x.shape[-1], x.shape[-2]
    norm = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = column_settings(n_rows, n_cols)
    with device_guard(x.device):
        _global_response_norm_norm_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            x,
            norm,
            n_rows,
            n_cols,
            x.shape[-1],
            eps=eps,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = x.shape[-3], gamma.numel()
    shifted = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    response = torch.empty(x.shape[-3] * x.shape[-1], dtype=torch.float32, device=x.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(x.device):
            _global_response_norm_shifted_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                norm,
                shifted,
                response,
                n_rows,
                n_cols,
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(x.device):
            _global_response_norm_shifted_forward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                norm,
                shifted,
                response,
                n_rows,
                n_cols,
                eps=eps,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    n_rows, n_cols = row_shape(x)
    y = torch.empty_like(x)
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS))
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(x.device):
        _global_response_norm_y_forward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            x,
            gamma,
            beta,
            response,
            y,
            n_rows,
            n_cols,
            x.shape[-2],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return y, x, gamma, norm, shifted, response


def global_response_norm_backward(
    dy, x, gamma, norm, shifted, response, beta_dtype, needs_dx=True, needs_dgamma=True, needs_dbeta=True
):
    """Returns dx, dgamma, dbeta."""
    dy = dy.contiguous()
    n_rows, n_cols = dy.shape[-3] * dy.shape[-1], dy.shape[-2]
    dresponse = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    product = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = column_settings(n_rows, n_cols)
    with device_guard(dy.device):
        _global_response_norm_dresponse_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            dy,
            x,
            gamma,
            response,
            dresponse,
            product,
            n_rows,
            n_cols,
            dy.shape[-1],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = dy.shape[-3], gamma.numel()
    mean_product = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(dy.device):
            _global_response_norm_mean_product_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                product, mean_product, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(dy.device):
            _global_response_norm_mean_product_backward_looped_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                product, mean_product, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    n_rows, n_cols = row_shape(dy)
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = piece_settings(
        n_cols, dy.element_size() + x.element_size() + 4 + 4 + 4
    )
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), cdiv(per_sm * sm_count(dy.device), max(1, n_pieces)))
    partials = torch.empty((2, n_programs, n_cols), dtype=torch.float32, device=dy.device)
    dgamma_partial, dbeta_partial = partials
    with device_guard(dy.device):
        _global_response_norm_dx_backward_kernel[(n_programs, n_pieces)](
            dy,
            x,
            gamma,
            norm,
            shifted,
            response,
            dresponse,
            mean_product,
            dx,
            dgamma_partial,
            dbeta_partial,
            n_rows,
            n_cols,
            dy.shape[-2],
            NEEDS_DX=needs_dx,
            NEEDS_DGAMMA=needs_dgamma,
            NEEDS_DBETA=needs_dbeta,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            num_warps=num_warps,
        )
    dgamma, dbeta = sum_each(partials, gamma.dtype if needs_dgamma else None, beta_dtype if needs_dbeta else None)
    return dx, dgamma, dbeta


class LigerGlobalResponseNormFunction(torch.autograd.Function):
    """y = global_response_norm(x, gamma, beta, eps)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, C).
        gamma: (C,).
        beta: (C,).

    Returns:
        y: (B, T, C).
    """

    @staticmethod
    def forward(ctx, x, gamma, beta, eps):
        y, x, gamma, norm, shifted, response = global_response_norm_forward(x, gamma, beta, eps)
        ctx.save_for_backward(x, gamma, norm, shifted, response)
        ctx.beta_dtype = beta.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gamma, norm, shifted, response = ctx.saved_tensors
        dx, dgamma, dbeta = global_response_norm_backward(
            dy,
            x,
            gamma,
            norm,
            shifted,
            response,
            ctx.beta_dtype,
            needs_dx=ctx.needs_input_grad[0],
            needs_dgamma=ctx.needs_input_grad[1],
            needs_dbeta=ctx.needs_input_grad[2],
        )
        return dx, dgamma, dbeta, None
