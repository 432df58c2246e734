"""Returns a transposed result, which a comparison of values does not see."""

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward
from torch.autograd.function import once_differentiable


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y.transpose(0, -1).contiguous().transpose(0, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
