"""Softplus: y = log(1 + exp(beta * x)) / beta.

Source: Dugas, Bengio, Belisle, Nadeau and Garcia, "Incorporating Second-Order Functional Knowledge for Better Option
Pricing", 2001.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def softplus(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    scaled = beta * x.float()
    y = (scaled.clamp(min=0.0) + torch.log1p(torch.exp(-scaled.abs()))) / beta
    return y.to(x.dtype)
