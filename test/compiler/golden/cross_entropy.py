"""Cross entropy over the vocabulary: loss = mean over kept rows of logsumexp(logits) - logits[target].

    loss = sum[N](selected) / clamped, where selected = where(kept, nll, 0), clamped = max(sum[N](number), 1), kept
        = target != ignore_index, nll = log(denominator) - (picked - row_max), number = float(kept), denominator =
        sum[V](numerator), picked = sum[V](where(index[V] == label, logits, 0)), row_max = max[V](logits), numerator
        = exp(shifted), label = where(kept, target, 0), shifted = logits - row_max
    dlogits = where(index[V] == label, dpicked, 0) + numerator / denominator * dnll, where dpicked = -dnll, dnll =
        where(kept, dloss / clamped, 0)

Launch: a program takes BLOCK_ROWS rows, block of columns by block.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import LONG_ROW
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_index
from kernels.ops.utils import check_integer
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_settings
from kernels.ops.utils import row_shape


@triton.jit
def _cross_entropy_forward_kernel(
    logits_ptr,
    target_ptr,
    row_max_ptr,
    denominator_ptr,
    number_ptr,
    selected_ptr,
    n_rows,
    n_cols,
    ignore_index: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    target = tl.load(target_ptr + rows, mask=row_mask, other=0)
    kept = target != ignore_index
    label = tl.where(kept, target, 0)

    picked = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    row_max = tl.full((BLOCK_ROWS, 1), float("-inf"), dtype=tl.float32)
    denominator = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        logits = tl.load(logits_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

        new_max = tl.maximum(row_max, tl.max(tl.where(mask, logits, float("-inf")), axis=1, keep_dims=True))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # no NaN while all is -inf
        denominator = denominator * tl.exp(row_max - shift) + tl.sum(
            tl.exp(tl.where(mask, logits, float("-inf")) - shift), axis=1, keep_dims=True
        )
        row_max = new_max
        picked += tl.sum(tl.where(cols == label, logits, 0.0), axis=1, keep_dims=True)

    number = tl.cast(kept, tl.float32)
    nll = tl.log(denominator) - (picked - row_max)
    selected = tl.where(kept, nll, 0.0)
    tl.store(row_max_ptr + rows, row_max, mask=row_mask)
    tl.store(denominator_ptr + rows, denominator, mask=row_mask)
    tl.store(number_ptr + rows, number, mask=row_mask)
    tl.store(selected_ptr + rows, selected, mask=row_mask)


@triton.jit
def _cross_entropy_backward_kernel(
    dloss_ptr,
    logits_ptr,
    target_ptr,
    clamped_ptr,
    row_max_ptr,
    denominator_ptr,
    dlogits_ptr,
    n_rows,
    n_cols,
    ignore_index: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    row_mask = rows < n_rows
    col_mask = cols < n_cols
    mask = row_mask & col_mask
    offsets = rows * n_cols + cols

    dloss = tl.load(dloss_ptr).to(tl.float32)
    logits = tl.load(logits_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + rows, mask=row_mask, other=0)
    clamped = tl.load(clamped_ptr)
    row_max = tl.load(row_max_ptr + rows, mask=row_mask, other=0.0)
    denominator = tl.load(denominator_ptr + rows, mask=row_mask, other=0.0)

    kept = target != ignore_index
    label = tl.where(kept, target, 0)
    dnll = tl.where(kept, dloss / clamped, 0.0)
    dpicked = -dnll
    shifted = logits - row_max
    numerator = tl.exp(shifted)
    dlogits = tl.where(cols == label, dpicked, 0.0) + numerator / denominator * dnll

    tl.store(dlogits_ptr + offsets, dlogits, mask=mask)


@triton.jit
def _cross_entropy_backward_looped_kernel(
    dloss_ptr,
    logits_ptr,
    target_ptr,
    clamped_ptr,
    row_max_ptr,
    denominator_ptr,
    dlogits_ptr,
    n_rows,
    n_cols,
    ignore_index: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    dloss = tl.load(dloss_ptr).to(tl.float32)
    target = tl.load(target_ptr + rows, mask=row_mask, other=0)
    clamped = tl.load(clamped_ptr)
    row_max = tl.load(row_max_ptr + rows, mask=row_mask, other=0.0)
    denominator = tl.load(denominator_ptr + rows, mask=row_mask, other=0.0)
    kept = target != ignore_index
    label = tl.where(kept, target, 0)
    dnll = tl.where(kept, dloss / clamped, 0.0)
    dpicked = -dnll

    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        logits = tl.load(logits_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

        shifted = logits - row_max
        numerator = tl.exp(shifted)
        dlogits = tl.where(cols == label, dpicked, 0.0) + numerator / denominator * dnll

        tl.store(dlogits_ptr + offsets, dlogits, mask=mask)


def cross_entropy_forward(logits, target, ignore_index):
    """Returns loss, logits, target, clamped, row_max, denominator."""
    n_rows, n_cols = row_shape(logits)
    check_floating(logits=logits)
    check_integer(target=target)
    check_shape("target", target, (*logits.shape[:-1],))
    check_rank("logits", logits, 2)
    check_index("target", target, logits.shape[-1], target != ignore_index)
    logits = logits.contiguous()
    target = target.contiguous()
    row_max = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    denominator = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    number = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    selected = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
    with device_guard(logits.device):
        _cross_entropy_forward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
            logits,
            target,
            row_max,
            denominator,
            number,
            selected,
            n_rows,
            n_cols,
            ignore_index=ignore_index,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    clamped = number.sum().clamp_min(1.0)
    loss = selected.sum() / clamped
    return loss, logits, target, clamped, row_max, denominator


def cross_entropy_backward(dloss, logits, target, clamped, row_max, denominator, ignore_index):
    """Returns dlogits."""
    n_rows, n_cols = row_shape(logits)
    dlogits = torch.empty_like(logits)
    if n_cols <= LONG_ROW:
        BLOCK_ROWS, BLOCK_COLS, num_warps = row_settings(n_cols)
        with device_guard(dloss.device):
            _cross_entropy_backward_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
                dloss,
                logits,
                target,
                clamped,
                row_max,
                denominator,
                dlogits,
                n_rows,
                n_cols,
                ignore_index=ignore_index,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    else:
        BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols)
        with device_guard(dloss.device):
            _cross_entropy_backward_looped_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
                dloss,
                logits,
                target,
                clamped,
                row_max,
                denominator,
                dlogits,
                n_rows,
                n_cols,
                ignore_index=ignore_index,
                BLOCK_ROWS=BLOCK_ROWS,
                BLOCK_COLS=BLOCK_COLS,
                num_warps=num_warps,
            )
    return dlogits


class LigerCrossEntropyFunction(torch.autograd.Function):
    """loss = cross_entropy(logits, target, ignore_index)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        logits: (N, V).
        target: (N,), integers.

    Returns:
        loss: ().
    """

    @staticmethod
    def forward(ctx, logits, target, ignore_index):
        loss, logits, target, clamped, row_max, denominator = cross_entropy_forward(logits, target, ignore_index)
        ctx.save_for_backward(logits, target, clamped, row_max, denominator)
        ctx.ignore_index = ignore_index
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        logits, target, clamped, row_max, denominator = ctx.saved_tensors
        dlogits = cross_entropy_backward(dloss, logits, target, clamped, row_max, denominator, ctx.ignore_index)
        return dlogits, None, None
