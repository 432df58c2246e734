"""A kernel is launched, and another compiler's computes."""

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward
from torch.autograd.function import once_differentiable

compiled = torch.compile(lambda x: torch.softmax(x, -1))


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        softmax_forward(x)
        y = compiled(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
