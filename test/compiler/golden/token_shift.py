"""A learned mix with the token before: y = x + mix * (previous(x) - x), where previous is 0 for the first token.

    y = x + mix * (previous - x)
    previous = x[T - 1], or 0
    dx = dy + dy_next * mix - dprevious, where dprevious = dy * mix
    dy_next = dy[T + 1], or 0
    dmix = sum[B, T](dy * (previous - x))

Launch: a program takes BLOCK_ROWS rows of BLOCK_COLS columns; in backward it strides over rows and keeps its part of
dmix.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import PIECE_COLS
from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import piece_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import sm_count
from kernels.ops.utils import sum_partials


@triton.jit
def _token_shift_forward_kernel(
    x_ptr,
    mix_ptr,
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

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    previous = tl.load(x_ptr + offsets - n_cols, mask=mask & (rows % n_T >= 1), other=0.0).to(tl.float32)
    mix = tl.load(mix_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)

    y = x + mix * (previous - x)

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _token_shift_backward_kernel(
    dy_ptr,
    x_ptr,
    mix_ptr,
    dx_ptr,
    dmix_partial_ptr,
    n_rows,
    n_cols,
    n_T,
    NEEDS_DX: tl.constexpr,
    NEEDS_DMIX: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    cols = (tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
    col_mask = cols < n_cols
    mix = tl.load(mix_ptr + cols, mask=col_mask, other=0.0).to(tl.float32)
    dmix = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)

    for block in tl.range(tl.program_id(0), tl.cdiv(n_rows, BLOCK_ROWS), tl.num_programs(0), num_stages=NUM_STAGES):
        rows = (tl.cast(block, tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
        row_mask = rows < n_rows
        mask = row_mask & col_mask
        offsets = rows * n_cols + cols

        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy_next = tl.load(dy_ptr + offsets + n_cols, mask=mask & (rows % n_T < n_T - 1), other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        previous = tl.load(x_ptr + offsets - n_cols, mask=mask & (rows % n_T >= 1), other=0.0).to(tl.float32)

        dprevious = dy * mix
        dx = dy + dy_next * mix - dprevious

        if NEEDS_DX:
            tl.store(dx_ptr + offsets, dx, mask=mask)
        if NEEDS_DMIX:
            dmix += dy * (previous - x)

    if NEEDS_DMIX:
        tl.store(
            dmix_partial_ptr + tl.program_id(0) * n_cols + cols, tl.sum(dmix, axis=0, keep_dims=True), mask=col_mask
        )


def token_shift_forward(x, mix):
    """Returns y, x, mix."""
    n_rows, n_cols = row_shape(x)
    check_floating(x=x, mix=mix)
    check_shape("mix", mix, (x.shape[-1],))
    check_rank("x", x, 3)
    x = x.contiguous()
    mix = mix.contiguous()
    y = torch.empty_like(x, dtype=torch.promote_types(x.dtype, mix.dtype))
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(min(n_cols, PIECE_COLS))
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    with device_guard(x.device):
        _token_shift_forward_kernel[(cdiv(n_rows, BLOCK_ROWS), n_pieces)](
            x, mix, y, n_rows, n_cols, x.shape[-2], BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
        )
    return y, x, mix


def token_shift_backward(dy, x, mix, needs_dx=True, needs_dmix=True):
    """Returns dx, dmix."""
    n_rows, n_cols = row_shape(dy)
    dy = dy.contiguous()
    dx = torch.empty_like(x) if needs_dx else None
    BLOCK_ROWS, BLOCK_COLS, NUM_STAGES, num_warps, per_sm = piece_settings(
        n_cols, dy.element_size() + dy.element_size() + x.element_size() + x.element_size()
    )
    n_pieces = cdiv(n_cols, BLOCK_COLS)
    n_programs = min(cdiv(n_rows, BLOCK_ROWS), cdiv(per_sm * sm_count(dy.device), max(1, n_pieces)))
    dmix_partial = torch.empty((n_programs, n_cols), dtype=torch.float32, device=dy.device) if needs_dmix else None
    with device_guard(dy.device):
        _token_shift_backward_kernel[(n_programs, n_pieces)](
            dy,
            x,
            mix,
            dx,
            dmix_partial,
            n_rows,
            n_cols,
            dy.shape[-2],
            NEEDS_DX=needs_dx,
            NEEDS_DMIX=needs_dmix,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            NUM_STAGES=NUM_STAGES,
            num_warps=num_warps,
        )
    dmix = sum_partials(dmix_partial, mix.dtype) if needs_dmix else None
    return dx, dmix


class LigerTokenShiftFunction(torch.autograd.Function):
    """y = token_shift(x, mix)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        mix: (H,).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, mix):
        y, x, mix = token_shift_forward(x, mix)
        ctx.save_for_backward(x, mix)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, mix = ctx.saved_tensors
        dx, dmix = token_shift_backward(
            dy, x, mix, needs_dx=ctx.needs_input_grad[0], needs_dmix=ctx.needs_input_grad[1]
        )
        return dx, dmix
