"""Huber loss: loss = mean(error^2 / 2 where |error| <= delta, delta * (|error| - delta / 2) elsewhere).

Source: Huber, "Robust Estimation of a Location Parameter", 1964.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}


def huber_loss(prediction: torch.Tensor, target: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    error = (prediction.float() - target.float()).abs()
    quadratic = 0.5 * error * error
    linear = delta * (error - 0.5 * delta)
    loss = torch.where(error <= delta, quadratic, linear).mean()
    return loss
