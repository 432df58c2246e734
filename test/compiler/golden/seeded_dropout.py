"""Dropout whose mask follows from a seed: y = x / (1 - p) where uniform(seed, position) >= p, else 0.

    y = where(uniform >= p, x / (1 - p), 0), where uniform = float(bits >> 8) / 1.67772e+07, bits = mixed ^ (mixed
        >> 14), mixed = (seeded ^ (seeded >> 15)) * 830770091 & 4294967295, seeded = ((counted ^ (counted >> 11)) ^
        key) * 2890668881 & 4294967295, counted = (position ^ (position >> 17)) * 3982152891 & 4294967295, key =
        (seed ^ (seed >> 16)) * 2146121005 & 4294967295
    dx = where(uniform >= p, dy, 0) / (1 - p)

Launch: one program for 1024 elements, wherever rows begin.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_integer
from kernels.ops.utils import check_rank
from kernels.ops.utils import check_shape
from kernels.ops.utils import device_guard

BLOCK_SIZE = 1024


@triton.jit
def _seeded_dropout_forward_kernel(
    x_ptr,
    seed_ptr,
    y_ptr,
    n_elements,
    p: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    seed = tl.load(seed_ptr)

    counted = (offsets ^ (offsets >> 17)) * 0xED5AD4BB & 0xFFFFFFFF
    key = (seed ^ (seed >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    seeded = ((counted ^ (counted >> 11)) ^ key) * 0xAC4C1B51 & 0xFFFFFFFF
    mixed = (seeded ^ (seeded >> 15)) * 0x31848BAB & 0xFFFFFFFF
    bits = mixed ^ (mixed >> 14)
    uniform = tl.cast(bits >> 8, tl.float32) / 16777216.0
    y = tl.where(uniform >= p, x / (1.0 - p), 0.0)

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _seeded_dropout_backward_kernel(
    dy_ptr,
    seed_ptr,
    dx_ptr,
    n_elements,
    p: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    seed = tl.load(seed_ptr)

    counted = (offsets ^ (offsets >> 17)) * 0xED5AD4BB & 0xFFFFFFFF
    key = (seed ^ (seed >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    seeded = ((counted ^ (counted >> 11)) ^ key) * 0xAC4C1B51 & 0xFFFFFFFF
    mixed = (seeded ^ (seeded >> 15)) * 0x31848BAB & 0xFFFFFFFF
    bits = mixed ^ (mixed >> 14)
    uniform = tl.cast(bits >> 8, tl.float32) / 16777216.0
    dx = tl.where(uniform >= p, dy, 0.0) / (1.0 - p)

    tl.store(dx_ptr + offsets, dx, mask=mask)


def seeded_dropout_forward(x, seed, p):
    """Returns y, seed."""
    check_floating(x=x)
    check_integer(seed=seed)
    check_shape("seed", seed, (1,))
    check_rank("x", x, 3)
    x = x.contiguous()
    seed = seed.contiguous()
    n_elements = x.numel()
    y = torch.empty_like(x)
    with device_guard(x.device):
        _seeded_dropout_forward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            x, seed, y, n_elements, p=p, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return y, seed


def seeded_dropout_backward(dy, seed, p):
    """Returns dx."""
    dy = dy.contiguous()
    n_elements = dy.numel()
    dx = torch.empty_like(dy)
    with device_guard(dy.device):
        _seeded_dropout_backward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            dy, seed, dx, n_elements, p=p, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return dx


class LigerSeededDropoutFunction(torch.autograd.Function):
    """y = seeded_dropout(x, seed, p)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).
        seed: (1,), integers.

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x, seed, p):
        y, seed = seeded_dropout_forward(x, seed, p)
        ctx.save_for_backward(seed)
        ctx.p = p
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (seed,) = ctx.saved_tensors
        dx = seeded_dropout_backward(dy, seed, ctx.p)
        return dx, None, None
