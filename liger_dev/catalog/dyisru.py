"""A point-wise stand-in for a normalisation: y = gamma * x / sqrt(alpha + x^2) + beta.

Source: Stollenwerk, "The Mathematical Relationship Between Layer Normalization and Dynamic Activation Functions", 2025.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "gamma": ("H",), "beta": ("H",)}
PARAMETERS = {"gamma": "ones", "beta": "zeros"}
CLOSEST = "dyt"


def dyisru(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    x_float = x.float()
    squashed = x_float * torch.rsqrt(alpha + x_float.square())
    y = gamma.float() * squashed + beta.float()
    return y.to(x.dtype)
