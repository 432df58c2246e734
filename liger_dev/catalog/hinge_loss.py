"""Hinge loss: loss = mean(max(1 - target * prediction, 0)), with targets -1 and 1.

Source: Cortes and Vapnik, "Support-Vector Networks", 1995.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}


def hinge_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    loss = (1.0 - prediction.float() * target.float()).clamp(min=0.0).mean()
    return loss
