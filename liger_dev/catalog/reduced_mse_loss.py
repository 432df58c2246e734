"""Squared error, loss = (x - target)^2, its mean, its sum, or as it is.

Source: Gauss, "Theoria combinationis observationum", 1821.
"""

import torch

SHAPES = {"x": ("N", "H"), "target": ("N", "H")}
CLOSEST = "mse_loss"


def reduced_mse_loss(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    loss = (x.float() - target.float()).square()
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean()
