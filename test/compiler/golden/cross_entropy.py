"""Cross entropy over the vocabulary: loss = mean over kept rows of logsumexp(logits) - logits[target].

    loss = sum[N](selected) / clamped, where selected = where(kept, nll, 0), clamped = max(sum[N](float(kept)), 1),
        kept = target != ignore_index, nll = log(denominator) - (picked - row_max), denominator = sum[V](numerator),
        picked = sum[V](where(index[V] == label, logits, 0)), row_max = max[V](logits), numerator = exp(shifted),
        label = where(kept, target, 0), shifted = logits - row_max
    dlogits = where(index[V] == label, dpicked, 0) + numerator * (dnll / denominator), where dpicked = -dnll, dnll =
        where(kept, dloss / clamped, 0)

Launch: a program takes BLOCK_ROWS rows, block of columns by block.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_index
from kernels.ops.utils import check_integer
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard
from kernels.ops.utils import exp_or_zero
from kernels.ops.utils import loop_settings
from kernels.ops.utils import row_shape
from kernels.ops.utils import scalable
from kernels.ops.utils import scale_in_place


@triton.jit
def _cross_entropy_kernel(
    logits_ptr,
    target_ptr,
    dloss_ptr,
    clamped_ptr,
    dlogits_ptr,
    selected_ptr,
    n_rows,
    n_cols,
    ignore_index: tl.constexpr,
    HAS_DLOSS: tl.constexpr,
    NEEDS_DLOGITS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    row_mask = rows < n_rows
    target = tl.load(target_ptr + rows, mask=row_mask, other=0)
    dloss = tl.load(dloss_ptr).to(tl.float32) if HAS_DLOSS else 1.0
    clamped = tl.load(clamped_ptr)

    row_max = tl.full((BLOCK_ROWS, 1), float("-inf"), dtype=tl.float32)
    denominator = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = (start + tl.arange(0, BLOCK_COLS))[None, :]
        mask = row_mask & (cols < n_cols)
        offsets = rows * n_cols + cols

        logits = tl.load(logits_ptr + offsets, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(
            tl.float32
        )

        new_max = tl.maximum(row_max, tl.max(logits, axis=1, keep_dims=True))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)  # no NaN while all is -inf
        denominator = denominator * exp_or_zero(row_max - shift)
        denominator += tl.sum(exp_or_zero(logits - shift), axis=1, keep_dims=True)
        row_max = new_max

    kept = target != ignore_index
    label = tl.where(kept, target, 0)
    picked = tl.load(logits_ptr + rows * n_cols + label, mask=row_mask & (label >= 0) & (label < n_cols), other=0.0).to(
        tl.float32
    )
    difference = picked - row_max
    nll = tl.log(denominator) - difference
    selected = tl.where(kept, nll, 0.0)
    tl.store(selected_ptr + rows, selected, mask=row_mask)

    if NEEDS_DLOGITS:
        dnll = tl.where(kept, dloss / clamped, 0.0)
        ratio = dnll / denominator
        # Backwards, since the last block is the likeliest to be in the cache.
        n_blocks = tl.cdiv(n_cols, BLOCK_COLS)
        for block in range(n_blocks):
            cols = ((n_blocks - 1 - block) * BLOCK_COLS + tl.arange(0, BLOCK_COLS))[None, :]
            mask = row_mask & (cols < n_cols)
            offsets = rows * n_cols + cols

            logits = tl.load(logits_ptr + offsets, mask=mask, other=float("-inf"), eviction_policy="evict_first").to(
                tl.float32
            )

            shifted = logits - row_max
            numerator = exp_or_zero(shifted)

            tl.store(dlogits_ptr + offsets, numerator * ratio, mask=mask, eviction_policy="evict_first")

        # The element at label once more, after all others.
        tl.debug_barrier()
        tl.store(
            dlogits_ptr + rows * n_cols + label,
            exp_or_zero(difference) * ratio - dnll,
            mask=row_mask & (label >= 0) & (label < n_cols),
        )


def cross_entropy_forward(logits, target, ignore_index, dloss=None, needs_dlogits=False):
    """Returns loss, dlogits; gradients for a dloss of 1 where none is given."""
    n_rows, n_cols = row_shape(logits)
    check_floating(logits=logits)
    check_integer(target=target)
    check_shape("target", target, (*logits.shape[:-1],))
    check_rank("logits", logits, 2)
    kept = target != ignore_index
    check_index("target", target, logits.shape[-1], kept)
    logits = logits.contiguous()
    target = target.contiguous()
    clamped = kept.sum(dtype=torch.float32).clamp_min(1.0)
    dlogits = torch.empty_like(logits) if needs_dlogits else None
    selected = torch.empty(n_rows, dtype=torch.float32, device=logits.device)
    BLOCK_ROWS, BLOCK_COLS, num_warps = loop_settings(n_cols, again=True)
    with device_guard(logits.device):
        _cross_entropy_kernel[(cdiv(n_rows, BLOCK_ROWS),)](
            logits,
            target,
            dloss,
            clamped,
            dlogits,
            selected,
            n_rows,
            n_cols,
            ignore_index=ignore_index,
            HAS_DLOSS=dloss is not None,
            NEEDS_DLOGITS=needs_dlogits,
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_COLS=BLOCK_COLS,
            num_warps=num_warps,
        )
    loss = selected.sum() / clamped
    return loss, dlogits


def cross_entropy_backward(dloss, logits, target, dlogits, ignore_index, needs_dlogits=True):
    """Returns dlogits: those that forward has made, times dloss, or new ones."""
    fresh = dlogits is None
    inside = fresh and not scalable(logits, target)
    if fresh:
        _, dlogits = cross_entropy_forward(
            logits, target, ignore_index, dloss if inside else None, needs_dlogits=needs_dlogits
        )
    if not inside:
        scale_in_place(dlogits, dloss)
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
        ready = scalable(logits, target)
        loss, dlogits = cross_entropy_forward(
            logits, target, ignore_index, needs_dlogits=ready and ctx.needs_input_grad[0]
        )
        ctx.dlogits = dlogits
        ctx.save_for_backward(logits, target)
        ctx.ignore_index = ignore_index
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, dloss):
        logits, target = ctx.saved_tensors
        # Given away: a second backward makes its own.
        dlogits, ctx.dlogits = ctx.dlogits, None
        dlogits = cross_entropy_backward(
            dloss, logits, target, dlogits, ctx.ignore_index, needs_dlogits=ctx.needs_input_grad[0]
        )
        return dlogits, None, None
