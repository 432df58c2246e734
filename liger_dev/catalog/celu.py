"""CELU, a smooth ELU: y = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0).

Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "elu"


def celu(x: torch.Tensor, alpha: float = 1.5) -> torch.Tensor:
    negative = alpha * torch.expm1(x / alpha)
    y = torch.where(x > 0, x, negative)
    return y
