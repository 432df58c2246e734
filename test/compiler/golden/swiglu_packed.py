"""SwiGLU of one tensor that holds the gate in its first half: y = silu(gate) * up, where gate, up = halves of x.

    y = x_0 * sigmoid(x_0) * x_1
    dx_0 = dy * x_1 * sigmoid(x_0) * (1 + x_0 * (1 - sigmoid(x_0)))
    dx_1 = dy * x_0 * sigmoid(x_0)

Launch: one program for 1024 elements, wherever rows begin.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import cdiv
from kernels.ops.utils import check_divisible
from kernels.ops.utils import check_floating
from kernels.ops.utils import check_rank
from kernels.ops.utils import device_guard

BLOCK_SIZE = 1024


@triton.jit
def _swiglu_packed_forward_kernel(
    x_ptr,
    y_ptr,
    n_elements,
    n_H,
    n_H_2,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x_0_offsets = offsets // n_H_2 * n_H + offsets % n_H_2
    x_1_offsets = offsets // n_H_2 * n_H + offsets % n_H_2 + n_H_2

    x_0 = tl.load(x_ptr + x_0_offsets, mask=mask, other=0.0).to(tl.float32)
    x_1 = tl.load(x_ptr + x_1_offsets, mask=mask, other=0.0).to(tl.float32)

    y = x_0 * tl.sigmoid(x_0) * x_1

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _swiglu_packed_backward_kernel(
    dy_ptr,
    x_ptr,
    dx_ptr,
    n_elements,
    n_H,
    n_H_2,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x_0_offsets = offsets // n_H_2 * n_H + offsets % n_H_2
    x_1_offsets = offsets // n_H_2 * n_H + offsets % n_H_2 + n_H_2

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x_0 = tl.load(x_ptr + x_0_offsets, mask=mask, other=0.0).to(tl.float32)
    x_1 = tl.load(x_ptr + x_1_offsets, mask=mask, other=0.0).to(tl.float32)

    sigmoid = tl.sigmoid(x_0)
    dx_0 = dy * x_1 * sigmoid * (1.0 + x_0 * (1.0 - sigmoid))
    dx_1 = dy * x_0 * sigmoid

    tl.store(dx_ptr + x_0_offsets, dx_0, mask=mask)
    tl.store(dx_ptr + x_1_offsets, dx_1, mask=mask)


def swiglu_packed_forward(x):
    """Returns y, x."""
    check_floating(x=x)
    check_divisible("x.shape[-1]", x.shape[-1], 2)
    check_rank("x", x, 3)
    x = x.contiguous()
    n_elements = x.shape[:-1].numel() * (x.shape[-1] // 2)
    y = torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=x.dtype, device=x.device)
    with device_guard(x.device):
        _swiglu_packed_forward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            x, y, n_elements, x.shape[-1], x.shape[-1] // 2, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return y, x


def swiglu_packed_backward(dy, x):
    """Returns dx."""
    dy = dy.contiguous()
    n_elements = dy.numel()
    dx = torch.empty_like(x)
    with device_guard(dy.device):
        _swiglu_packed_backward_kernel[(cdiv(n_elements, BLOCK_SIZE),)](
            dy, x, dx, n_elements, x.shape[-1], dy.shape[-1], BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return dx


class LigerSwigluPackedFunction(torch.autograd.Function):
    """y = swiglu_packed(x)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).

    Returns:
        y: (B, T, H_2).
    """

    @staticmethod
    def forward(ctx, x):
        y, x = swiglu_packed_forward(x)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = swiglu_packed_backward(dy, x)
        return dx
