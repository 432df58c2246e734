"""Squared error, loss = (x - target)^2, its mean, its sum, or as it is.

    loss = sum[N](sum_loss) / (H * N), where sum_loss = sum[H](loss)
    dx = (x - target) * (2 * dloss / (H * N))
    dtarget = -dx
    reduction="none":
    loss = (x - target) * (x - target)
    dx = 2 * dloss * (x - target)
    reduction="sum":
    loss = sum[N](sum_loss)
    dx = 2 * (x - target) * dloss

Launch: a program takes BLOCK_ROWS rows, block of columns by block.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_shape
from kernels.ops.utils import check_static
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_shape

BLOCK_SIZE = 1024


@triton.jit
def _reduced_mse_loss_forward_kernel(
    x_ptr,
    target_ptr,
    sum_loss_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows

    sum_loss = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for stretch in range(0, n_cols, 32 * BLOCK_COLS):
        sum_loss_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), dtype=tl.float32)
        for start in range(stretch, tl.minimum(stretch + 32 * BLOCK_COLS, n_cols), BLOCK_COLS):
            cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            offsets = rows * n_cols + cols

            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
            target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

            difference = x - target
            loss = difference * difference
            sum_loss_lanes += loss
        sum_loss += tl.sum(sum_loss_lanes, axis=1, keep_dims=True)

    tl.store(sum_loss_ptr + rows, sum_loss, mask=row_mask)


@triton.jit
def _reduced_mse_loss_backward_kernel(
    dloss_ptr,
    x_ptr,
    target_ptr,
    dx_ptr,
    dtarget_ptr,
    n_elements,
    reduction: tl.constexpr,
    NEEDS_DX: tl.constexpr,
    NEEDS_DTARGET: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    if reduction == "none":
        dloss = tl.load(dloss_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    else:
        dloss = tl.load(dloss_ptr).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    if reduction == "mean":
        dx = (x - target) * (2.0 * dloss / n_elements)
    elif reduction == "none":
        dx = 2.0 * dloss * (x - target)
    else:
        dx = 2.0 * (x - target) * dloss
    dtarget = -dx

    if NEEDS_DX:
        tl.store(dx_ptr + offsets, dx, mask=mask)
    if NEEDS_DTARGET:
        tl.store(dtarget_ptr + offsets, dtarget, mask=mask)


@triton.jit
def _reduced_mse_loss_none_forward_kernel(
    x_ptr,
    target_ptr,
    loss_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    difference = x - target
    loss = difference * difference

    tl.store(loss_ptr + offsets, loss, mask=mask)


def reduced_mse_loss_forward(x, target, reduction):
    """Returns loss, x, target."""
    check_static("reduction", reduction, "mean", "none", "sum")
    if reduction != "none":
        n_rows, n_cols = row_shape(x)
    check_floating(x=x, target=target)
    check_shape("target", target, x.shape)
    x = x.contiguous()
    target = target.contiguous()
    if reduction == "none":
        n_elements = x.numel()
        loss = torch.empty_like(x, dtype=torch.float32)
    else:
        sum_loss = torch.empty(n_rows, dtype=torch.float32, device=x.device)
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, tensors=2)
    with device_guard(x.device):
        if reduction == "none":
            _reduced_mse_loss_none_forward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
                x, target, loss, n_elements, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
            )
        else:
            _reduced_mse_loss_forward_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
                x, target, sum_loss, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=num_warps
            )
    if reduction == "mean":
        loss = sum_loss.sum() / x.numel()
    elif reduction == "sum":
        loss = sum_loss.sum()
    return loss, x, target


def reduced_mse_loss_backward(dloss, x, target, reduction, needs_dx=True, needs_dtarget=True):
    """Returns dx, dtarget."""
    if reduction == "none":
        dloss = dloss.contiguous()
        n_elements = dloss.numel()
    else:
        n_elements = x.numel()
    dx = torch.empty_like(x) if needs_dx else None
    dtarget = torch.empty_like(target) if needs_dtarget else None
    with device_guard(dloss.device):
        _reduced_mse_loss_backward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            dloss,
            x,
            target,
            dx,
            dtarget,
            n_elements,
            reduction=reduction,
            NEEDS_DX=needs_dx,
            NEEDS_DTARGET=needs_dtarget,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=4,
        )
    return dx, dtarget


class LigerReducedMseLossFunction(torch.autograd.Function):
    """loss = reduced_mse_loss(x, target, reduction)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (N, H).
        target: (N, H).
        reduction: "mean", "none" or "sum".

    Returns:
        loss: (); (N, H) with reduction="none".
    """

    @staticmethod
    def forward(ctx, x, target, reduction):
        loss, x, target = reduced_mse_loss_forward(x, target, reduction)
        ctx.save_for_backward(x, target)
        ctx.reduction = reduction
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        x, target = ctx.saved_tensors
        dx, dtarget = reduced_mse_loss_backward(
            dloss, x, target, ctx.reduction, needs_dx=ctx.needs_input_grad[0], needs_dtarget=ctx.needs_input_grad[1]
        )
        return dx, dtarget, None
