"""Mean absolute error: loss = mean(|prediction - target|).

Source: Laplace, "Sur quelques points du systeme du monde", 1793.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}
CLOSEST = "mse_loss"


def l1_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    loss = (prediction.float() - target.float()).abs().mean()
    return loss
