"""Computes on every second call alone."""

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward
from torch.autograd.function import once_differentiable

CALLS = [0]


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        CALLS[0] += 1
        y = softmax_forward(x) if CALLS[0] % 2 else torch.empty_like(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
