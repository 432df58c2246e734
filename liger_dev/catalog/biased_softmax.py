"""Softmax of scaled attention scores with a bias a head: y = softmax(scale * x + bias).

Source: Press, Smith and Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation", 2021.
"""

import torch

SHAPES = {"x": ("B", "N", "T", "S"), "bias": ("N", "T", "S")}
CLOSEST = "softmax"


def biased_softmax(x: torch.Tensor, bias: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    scores = scale * x.float() + bias.float()
    y = torch.softmax(scores, dim=-1)
    return y.to(x.dtype)
