"""ELU: y = x where x > 0, alpha * (exp(x) - 1) elsewhere.

Source: Clevert, Unterthiner and Hochreiter, "Fast and Accurate Deep Network Learning by Exponential Linear Units",
2015.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def elu(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    y = torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0.0)))
    return y
