"""Quantile loss: loss = mean(max(q * error, (q - 1) * error)), error = target - prediction.

Source: Koenker and Bassett, "Regression Quantiles", 1978.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}
CLOSEST = "l1_loss"


def quantile_loss(prediction: torch.Tensor, target: torch.Tensor, q: float = 0.9) -> torch.Tensor:
    error = target.float() - prediction.float()
    loss = torch.maximum(q * error, (q - 1.0) * error).mean()
    return loss
