"""Logarithm of the error's hyperbolic cosine: loss = mean(log(cosh(error))).

log(cosh(error)) = |error| + log(1 + exp(-2 * |error|)) - log(2), which does not overflow

Source: Green, "Bayesian Reconstructions from Emission Tomography Data Using a Modified EM Algorithm", 1990.
"""

import math

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}
CLOSEST = "huber_loss"


def log_cosh_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    error = (prediction.float() - target.float()).abs()
    loss = (error + torch.log1p(torch.exp(-2.0 * error)) - math.log(2.0)).mean()
    return loss
