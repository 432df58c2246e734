"""Softmax that may choose nothing: y = exp(x) / (1 + sum(exp(x))).

Source: Miller, "Attention Is Off By One", 2023.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}
CLOSEST = "softmax"


def softmax_plus_one(x: torch.Tensor) -> torch.Tensor:
    x_float = x.float()
    highest = x_float.amax(-1, keepdim=True).clamp(min=0.0)
    numerator = torch.exp(x_float - highest)
    denominator = numerator.sum(-1, keepdim=True) + torch.exp(-highest)
    y = numerator / denominator
    return y.to(x.dtype)
