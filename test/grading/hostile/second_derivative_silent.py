"""Lets autograd take its gradient for a constant."""

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
