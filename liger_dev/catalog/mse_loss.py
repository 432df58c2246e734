"""Mean squared error: loss = mean((prediction - target)^2).

Source: Gauss, "Theoria motus corporum coelestium", 1809.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}


def mse_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    error = prediction.float() - target.float()
    loss = error.square().mean()
    return loss
