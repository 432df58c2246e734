"""A point-wise stand-in for a normalisation: y = gamma * erf(alpha * x + shift) + beta.

Source: Chen, Liu, Zhu and Liu, "Stronger Normalization-Free Transformers", 2025.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "alpha": (1,), "shift": (1,), "gamma": ("H",), "beta": ("H",)}
PARAMETERS = {"alpha": "full(0.5)", "shift": "zeros", "gamma": "ones", "beta": "zeros"}
CLOSEST = "dyt"


def derf(
    x: torch.Tensor, alpha: torch.Tensor, shift: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    squashed = torch.erf(alpha * x + shift)
    y = gamma * squashed + beta
    return y
