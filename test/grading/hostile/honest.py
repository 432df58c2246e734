"""What the hostile candidates twist: softmax over the last dimension, as right as they come."""

import torch
import triton
import triton.language as tl

from torch.autograd.function import once_differentiable


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, numerator / tl.sum(numerator, axis=0), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    dy = tl.load(dy_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * n_cols + cols, y * (dy - tl.sum(dy * y, axis=0)), mask=mask)


def rows_and_columns(x):
    return x.shape[:-1].numel(), x.shape[-1], triton.next_power_of_2(x.shape[-1])


def softmax_forward(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n_rows, n_cols, block = rows_and_columns(x)
    forward_kernel[(n_rows,)](x, y, n_rows, n_cols, BLOCK=block)
    return y


def softmax_backward(dy, y):
    dy = dy.contiguous()
    dx = torch.empty_like(y)
    n_rows, n_cols, block = rows_and_columns(dy)
    backward_kernel[(n_rows,)](dy, y, dx, n_rows, n_cols, BLOCK=block)
    return dx


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
