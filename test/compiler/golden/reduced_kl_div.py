"""Kullback-Leibler divergence of rows, loss = target * (log(target) - log_probs), reduced as asked; log_target says

    loss = sum[N](dot) / N, where dot = sum[V](exp(target) * (target - log_probs))
    dlog_probs = -(exp(target) * dloss / N)
    dtarget = exp(target) * (1 + (target - log_probs)) * dloss / N
    log_target=False:
    loss = sum[N](dot) / N, where dot = sum[V](target * (log(max(target, 1e-10)) - log_probs))
    dlog_probs = -(target * dloss / N)
    dtarget = (log(max(target, 1e-10)) - log_probs) * dloss / N + where(target >= 1e-10, target * dloss /
        (max(target, 1e-10) * N), 0)
    reduction="sum":
    loss = sum[N](dot)
    dlog_probs = -(exp(target) * dloss)
    dtarget = exp(target) * (1 + (target - log_probs)) * dloss
    reduction="sum", log_target=False:
    loss = sum[N](dot), where dot = sum[V](target * (log(max(target, 1e-10)) - log_probs))
    dlog_probs = -(target * dloss)
    dtarget = (log(max(target, 1e-10)) - log_probs) * dloss + where(target >= 1e-10, target * dloss / max(target,
        1e-10), 0)
    reduction="mean":
    loss = sum[N](dot) / (N * V)
    dlog_probs = -(exp(target) * dloss / (N * V))
    dtarget = exp(target) * (1 + (target - log_probs)) * dloss / (N * V)
    reduction="mean", log_target=False:
    loss = sum[N](dot) / (N * V), where dot = sum[V](target * (log(max(target, 1e-10)) - log_probs))
    dlog_probs = -(target * dloss / (N * V))
    dtarget = (log(max(target, 1e-10)) - log_probs) * dloss / (N * V) + where(target >= 1e-10, target * dloss /
        (max(target, 1e-10) * (N * V)), 0)

Launch: a program takes BLOCK_ROWS rows, block of columns by block.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import check_static
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_shape

BLOCK_SIZE = 1024


@triton.jit
def _reduced_kl_div_forward_kernel(
    log_probs_ptr,
    target_ptr,
    dot_ptr,
    n_rows,
    n_cols,
    log_target: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    dot = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        log_probs = tl.load(log_probs_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

        if log_target:
            dot += tl.sum(tl.exp(target) * (target - log_probs), axis=1, keep_dims=True)
        else:
            dot += tl.sum(
                target * (tl.log(tl.where(target < 1e-10, 1e-10, target)) - log_probs), axis=1, keep_dims=True
            )

    tl.store(dot_ptr + rows, dot, mask=row_mask)


@triton.jit
def _reduced_kl_div_backward_kernel(
    dloss_ptr,
    log_probs_ptr,
    target_ptr,
    dlog_probs_ptr,
    dtarget_ptr,
    n_elements,
    n_N,
    reduction: tl.constexpr,
    log_target: tl.constexpr,
    NEEDS_DLOG_PROBS: tl.constexpr,
    NEEDS_DTARGET: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    dloss = tl.load(dloss_ptr).to(tl.float32)
    log_probs = tl.load(log_probs_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    if log_target:
        exponential = tl.exp(target)
        if reduction == "batchmean":
            dlog_probs = -(exponential * dloss / n_N)
            dtarget = exponential * (1.0 + (target - log_probs)) * dloss / n_N
        elif reduction == "sum":
            dlog_probs = -(exponential * dloss)
            dtarget = exponential * (1.0 + (target - log_probs)) * dloss
        else:
            dlog_probs = -(exponential * dloss / n_elements)
            dtarget = exponential * (1.0 + (target - log_probs)) * dloss / n_elements
    else:
        product = target * dloss
        if reduction == "batchmean":
            dlog_probs = -(product / n_N)
        elif reduction == "sum":
            dlog_probs = -product
        else:
            dlog_probs = -(product / n_elements)
        clamped = tl.where(target < 1e-10, 1e-10, target)
        if reduction == "batchmean":
            dtarget = (tl.log(clamped) - log_probs) * dloss / n_N + tl.where(
                target >= 1e-10, product / (clamped * n_N), 0.0
            )
        elif reduction == "sum":
            dtarget = (tl.log(clamped) - log_probs) * dloss + tl.where(target >= 1e-10, product / clamped, 0.0)
        else:
            dtarget = (tl.log(clamped) - log_probs) * dloss / n_elements + tl.where(
                target >= 1e-10, product / (clamped * n_elements), 0.0
            )

    if NEEDS_DLOG_PROBS:
        tl.store(dlog_probs_ptr + offsets, dlog_probs, mask=mask)
    if NEEDS_DTARGET:
        tl.store(dtarget_ptr + offsets, dtarget, mask=mask)


def reduced_kl_div_forward(log_probs, target, reduction, log_target):
    """Returns loss, log_probs, target."""
    check_static("reduction", reduction, "batchmean", "sum", "mean")
    n_rows, n_cols = row_shape(log_probs)
    check_floating(log_probs=log_probs, target=target)
    check_shape("target", target, log_probs.shape)
    check_rank("log_probs", log_probs, 2)
    log_probs = log_probs.contiguous()
    target = target.contiguous()
    dot = torch.empty(n_rows, dtype=torch.float32, device=log_probs.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
    with device_guard(log_probs.device):
        _reduced_kl_div_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            log_probs,
            target,
            dot,
            n_rows,
            n_cols,
            log_target=log_target,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    if reduction == "batchmean":
        loss = (dot.sum() / log_probs.shape[:-1].numel()).to(torch.promote_types(log_probs.dtype, target.dtype))
    elif reduction == "sum":
        loss = (dot.sum()).to(torch.promote_types(log_probs.dtype, target.dtype))
    else:
        loss = (dot.sum() / log_probs.numel()).to(torch.promote_types(log_probs.dtype, target.dtype))
    return loss, log_probs, target


def reduced_kl_div_backward(dloss, log_probs, target, reduction, log_target, needs_dlog_probs=True, needs_dtarget=True):
    """Returns dlog_probs, dtarget."""
    n_elements = log_probs.numel()
    dlog_probs = torch.empty_like(log_probs) if needs_dlog_probs else None
    dtarget = torch.empty_like(target) if needs_dtarget else None
    with device_guard(dloss.device):
        _reduced_kl_div_backward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            dloss,
            log_probs,
            target,
            dlog_probs,
            dtarget,
            n_elements,
            log_probs.shape[-2],
            reduction=reduction,
            log_target=log_target,
            NEEDS_DLOG_PROBS=needs_dlog_probs,
            NEEDS_DTARGET=needs_dtarget,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=4,
        )
    return dlog_probs, dtarget


class LigerReducedKlDivFunction(torch.autograd.Function):
    """loss = reduced_kl_div(log_probs, target, reduction, log_target)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        log_probs: (N, V).
        target: (N, V).
        reduction: "batchmean", "sum" or "mean".
        log_target: True or False.

    Returns:
        loss: ().
    """

    @staticmethod
    def forward(ctx, log_probs, target, reduction, log_target):
        loss, log_probs, target = reduced_kl_div_forward(log_probs, target, reduction, log_target)
        ctx.save_for_backward(log_probs, target)
        ctx.reduction = reduction
        ctx.log_target = log_target
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        log_probs, target = ctx.saved_tensors
        dlog_probs, dtarget = reduced_kl_div_backward(
            dloss,
            log_probs,
            target,
            ctx.reduction,
            ctx.log_target,
            needs_dlog_probs=ctx.needs_input_grad[0],
            needs_dtarget=ctx.needs_input_grad[1],
        )
        return dlog_probs, dtarget, None, None
