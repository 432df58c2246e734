"""Rotary position embedding on halves, as in Llama: y = x * cos + rotated(x) * sin, rotated(x1, x2) = (-x2, x1).

    q_turned = cat(q_0 * cos_0 - q_1 * sin_0, q_1 * cos_1 + q_0 * sin_1)
    k_turned = cat(k_0 * cos_0 - k_1 * sin_0, k_1 * cos_1 + k_0 * sin_1)
    dq_0 = dq_turned_1 * sin_1 + dq_turned_0 * cos_0
    dq_1 = dq_turned_1 * cos_1 - dq_turned_0 * sin_0
    dk_0 = dk_turned_1 * sin_1 + dk_turned_0 * cos_0
    dk_1 = dk_turned_1 * cos_1 - dk_turned_0 * sin_0

Launch: a program holds BLOCK_ROWS whole rows.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_divisible
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import row_settings


@triton.jit
def _rope_q_turned_forward_kernel(
    q_ptr,
    cos_ptr,
    sin_ptr,
    q_turned_ptr,
    n_rows,
    n_cols,
    n_T,
    n_D,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    q_0_offsets = rows * n_D + cols
    q_1_offsets = rows * n_D + cols + n_cols
    cos_0_offsets = rows % n_T * n_D + cols
    cos_1_offsets = rows % n_T * n_D + cols + n_cols

    q_0 = tl.load(q_ptr + q_0_offsets, mask=mask, other=0.0).to(tl.float32)
    q_1 = tl.load(q_ptr + q_1_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_0 = tl.load(cos_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_1 = tl.load(cos_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_0 = tl.load(sin_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)

    tl.store(q_turned_ptr + q_0_offsets, q_0 * cos_0 - q_1 * sin_0, mask=mask)
    tl.store(q_turned_ptr + q_1_offsets, q_1 * cos_1 + q_0 * sin_1, mask=mask)


@triton.jit
def _rope_k_turned_forward_kernel(
    k_ptr,
    cos_ptr,
    sin_ptr,
    k_turned_ptr,
    n_rows,
    n_cols,
    n_T,
    n_D,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    k_0_offsets = rows * n_D + cols
    k_1_offsets = rows * n_D + cols + n_cols
    cos_0_offsets = rows % n_T * n_D + cols
    cos_1_offsets = rows % n_T * n_D + cols + n_cols

    k_0 = tl.load(k_ptr + k_0_offsets, mask=mask, other=0.0).to(tl.float32)
    k_1 = tl.load(k_ptr + k_1_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_0 = tl.load(cos_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_1 = tl.load(cos_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_0 = tl.load(sin_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)

    tl.store(k_turned_ptr + k_0_offsets, k_0 * cos_0 - k_1 * sin_0, mask=mask)
    tl.store(k_turned_ptr + k_1_offsets, k_1 * cos_1 + k_0 * sin_1, mask=mask)


@triton.jit
def _rope_dq_backward_kernel(
    dq_turned_ptr,
    cos_ptr,
    sin_ptr,
    dq_ptr,
    n_rows,
    n_cols,
    n_T,
    n_D,
    NEEDS_DQ: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    dq_turned_1_offsets = rows * n_D + cols + n_cols
    dq_turned_0_offsets = rows * n_D + cols
    cos_0_offsets = rows % n_T * n_D + cols
    cos_1_offsets = rows % n_T * n_D + cols + n_cols

    dq_turned_1 = tl.load(dq_turned_ptr + dq_turned_1_offsets, mask=mask, other=0.0).to(tl.float32)
    dq_turned_0 = tl.load(dq_turned_ptr + dq_turned_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_0 = tl.load(cos_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_1 = tl.load(cos_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_0 = tl.load(sin_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)

    dq_1 = dq_turned_1 * cos_1 - dq_turned_0 * sin_0
    dq_0 = dq_turned_1 * sin_1 + dq_turned_0 * cos_0

    if NEEDS_DQ:
        tl.store(dq_ptr + dq_turned_1_offsets, dq_1, mask=mask)
        tl.store(dq_ptr + dq_turned_0_offsets, dq_0, mask=mask)


@triton.jit
def _rope_dk_backward_kernel(
    dk_turned_ptr,
    cos_ptr,
    sin_ptr,
    dk_ptr,
    n_rows,
    n_cols,
    n_T,
    n_D,
    NEEDS_DK: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    dk_turned_1_offsets = rows * n_D + cols + n_cols
    dk_turned_0_offsets = rows * n_D + cols
    cos_0_offsets = rows % n_T * n_D + cols
    cos_1_offsets = rows % n_T * n_D + cols + n_cols

    dk_turned_1 = tl.load(dk_turned_ptr + dk_turned_1_offsets, mask=mask, other=0.0).to(tl.float32)
    dk_turned_0 = tl.load(dk_turned_ptr + dk_turned_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_0 = tl.load(cos_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    cos_1 = tl.load(cos_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_0 = tl.load(sin_ptr + cos_0_offsets, mask=mask, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin_ptr + cos_1_offsets, mask=mask, other=0.0).to(tl.float32)

    dk_1 = dk_turned_1 * cos_1 - dk_turned_0 * sin_0
    dk_0 = dk_turned_1 * sin_1 + dk_turned_0 * cos_0

    if NEEDS_DK:
        tl.store(dk_ptr + dk_turned_1_offsets, dk_1, mask=mask)
        tl.store(dk_ptr + dk_turned_0_offsets, dk_0, mask=mask)


def rope_forward(q, k, cos, sin):
    """Returns q_turned, k_turned, cos, sin."""
    check_floating(q=q, k=k, cos=cos, sin=sin)
    check_shape("k", k, (*q.shape[:-3], k.shape[-3], q.shape[-2], q.shape[-1]))
    check_shape("cos", cos, (q.shape[-2], q.shape[-1]))
    check_shape("sin", sin, cos.shape)
    check_divisible("q.shape[-1]", q.shape[-1], 2)
    check_rank("q", q, 4)
    q = q.contiguous()
    k = k.contiguous()
    cos = cos.contiguous()
    sin = sin.contiguous()
    n_rows, n_cols = q.shape[:-1].numel(), q.shape[-1] // 2
    q_turned = torch.empty_like(q, dtype=torch.promote_types(torch.promote_types(q.dtype, cos.dtype), sin.dtype))
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, tiles=6)
    with device_guard(q.device):
        _rope_q_turned_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            q,
            cos,
            sin,
            q_turned,
            n_rows,
            n_cols,
            q.shape[-2],
            q.shape[-1],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = k.shape[:-1].numel(), q.shape[-1] // 2
    k_turned = torch.empty_like(k, dtype=torch.promote_types(torch.promote_types(k.dtype, cos.dtype), sin.dtype))
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, tiles=6)
    with device_guard(q.device):
        _rope_k_turned_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            k,
            cos,
            sin,
            k_turned,
            n_rows,
            n_cols,
            q.shape[-2],
            q.shape[-1],
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return q_turned, k_turned, cos, sin


def rope_backward(dq_turned, dk_turned, cos, sin, q_dtype, k_dtype, needs_dq=True, needs_dk=True):
    """Returns dq, dk."""
    dq_turned = dq_turned.contiguous()
    dk_turned = dk_turned.contiguous()
    n_rows, n_cols = dq_turned.shape[:-1].numel(), dq_turned.shape[-1] // 2
    dq = torch.empty_like(dq_turned, dtype=q_dtype) if needs_dq else None
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, tiles=6)
    with device_guard(dq_turned.device):
        _rope_dq_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            dq_turned,
            cos,
            sin,
            dq,
            n_rows,
            n_cols,
            dq_turned.shape[-2],
            dq_turned.shape[-1],
            NEEDS_DQ=needs_dq,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    n_rows, n_cols = dk_turned.shape[:-1].numel(), dq_turned.shape[-1] // 2
    dk = torch.empty_like(dk_turned, dtype=k_dtype) if needs_dk else None
    BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols, tiles=6)
    with device_guard(dq_turned.device):
        _rope_dk_backward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            dk_turned,
            cos,
            sin,
            dk,
            n_rows,
            n_cols,
            dq_turned.shape[-2],
            dq_turned.shape[-1],
            NEEDS_DK=needs_dk,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    return dq, dk


class LigerRopeFunction(torch.autograd.Function):
    """q_turned, k_turned = rope(q, k, cos, sin)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        q: (B, N, T, D).
        k: (B, K, T, D).
        cos: (T, D).
        sin: (T, D).

    Returns:
        q_turned: (B, N, T, D).
        k_turned: (B, K, T, D).
    """

    @staticmethod
    def forward(ctx, q, k, cos, sin):
        q_turned, k_turned, cos, sin = rope_forward(q, k, cos, sin)
        ctx.save_for_backward(cos, sin)
        ctx.q_dtype = q.dtype
        ctx.k_dtype = k.dtype
        return q_turned, k_turned

    @staticmethod
    @once_differentiable
    def backward(ctx, dq_turned, dk_turned):
        cos, sin = ctx.saved_tensors
        dq, dk = rope_backward(
            dq_turned,
            dk_turned,
            cos,
            sin,
            ctx.q_dtype,
            ctx.k_dtype,
            needs_dq=ctx.needs_input_grad[0],
            needs_dk=ctx.needs_input_grad[1],
        )
        return dq, dk, None, None
