"""Hides PyTorch behind an operator of its own, where a trace sees no name that it knows."""

import torch

from torch.autograd.function import once_differentiable


@torch.library.custom_op("hostile::softmax", mutates_args=())
def softmax_forward(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)


@torch.library.custom_op("hostile::softmax_backward", mutates_args=())
def softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (y.float() * (dy.float() - (dy.float() * y.float()).sum(-1, keepdim=True))).to(y.dtype)


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
