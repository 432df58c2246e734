"""Squared ReLU: y = max(x, 0)^2.

    y = positive * positive, where positive = relu(x)
    dx = 2 * dy * positive

Launch: one program for 1024 elements, wherever rows begin.
"""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable

from kernels.ops.utils import check_floating
from kernels.ops.utils import device_guard

BLOCK_SIZE = 1024


@triton.jit
def _relu_squared_forward_kernel(
    x_ptr,
    y_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    positive = tl.where(x < 0.0, 0.0, x)
    y = positive * positive

    tl.store(y_ptr + offsets, y, mask=mask)


@triton.jit
def _relu_squared_backward_kernel(
    dy_ptr,
    x_ptr,
    dx_ptr,
    n_elements,
    BLOCK_SIZE: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    positive = tl.where(x < 0.0, 0.0, x)
    dx = 2.0 * dy * positive

    tl.store(dx_ptr + offsets, dx, mask=mask)


def relu_squared_forward(x):
    """Returns y, x."""
    check_floating(x=x)
    x = x.contiguous()
    n_elements = x.numel()
    y = torch.empty_like(x)
    with device_guard(x.device):
        _relu_squared_forward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
            x, y, n_elements, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return y, x


def relu_squared_backward(dy, x):
    """Returns dx."""
    dy = dy.contiguous()
    n_elements = dy.numel()
    dx = torch.empty_like(x)
    with device_guard(dy.device):
        _relu_squared_backward_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](
            dy, x, dx, n_elements, BLOCK_SIZE=BLOCK_SIZE, num_warps=4
        )
    return dx


class LigerReluSquaredFunction(torch.autograd.Function):
    """y = relu_squared(x)

    Tensors are float32, bfloat16 or float16; one that is not contiguous is copied once. No second derivative.

    Args:
        x: (B, T, H).

    Returns:
        y: (B, T, H).
    """

    @staticmethod
    def forward(ctx, x):
        y, x = relu_squared_forward(x)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = relu_squared_backward(dy, x)
        return dx
