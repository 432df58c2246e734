"""Dynamic tanh, which stands in for a normalisation: y = gamma * tanh(alpha * x) + beta.

Source: Zhu, Chen, He, LeCun and Liu, "Transformers without Normalization", 2025.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "alpha": (1,), "gamma": ("H",), "beta": ("H",)}
PARAMETERS = {"alpha": "full(0.5)", "gamma": "ones", "beta": "zeros"}


def dyt(x: torch.Tensor, alpha: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    squashed = torch.tanh(alpha * x)
    y = gamma * squashed + beta
    return y
