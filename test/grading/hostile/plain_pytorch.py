"""PyTorch's own softmax: every number is right, and none comes from a kernel."""

import torch


def softmax(x):
    return torch.softmax(x, -1)
