"""Writes the gradient over the tensor that it saved: a second backward gets another one."""

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward
from torch.autograd.function import once_differentiable


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        y = result.clone()
        ctx.save_for_backward(y)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = softmax_backward(dy, y)
        y.data.copy_(dx)
        return dx
