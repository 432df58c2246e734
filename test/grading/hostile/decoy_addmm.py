"""A kernel is launched, and torch.addmm computes."""

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward
from torch.autograd.function import once_differentiable


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        flat = y.reshape(-1, y.shape[-1])
        eye = torch.eye(y.shape[-1], dtype=y.dtype)
        y = torch.addmm(torch.zeros_like(flat), flat, eye).reshape(y.shape)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
