"""Smooth L1 loss: loss = mean(error^2 / (2 * beta) where |error| < beta, |error| - beta / 2 elsewhere).

Source: Girshick, "Fast R-CNN", 2015.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}
CLOSEST = "huber_loss"


def smooth_l1_loss(prediction: torch.Tensor, target: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    error = (prediction.float() - target.float()).abs()
    loss = torch.where(error < beta, 0.5 * error * error / beta, error - 0.5 * beta).mean()
    return loss
