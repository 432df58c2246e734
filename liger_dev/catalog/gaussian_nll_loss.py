"""Negative log-likelihood of a normal distribution: loss = mean(log_variance + (x - mean)^2 / exp(log_variance)) / 2.

Source: Nix and Weigend, "Estimating the Mean and Variance of the Target Probability Distribution", 1994.
"""

import torch

SHAPES = {"mean": ("N", "H"), "log_variance": ("N", "H"), "x": ("N", "H")}
CLOSEST = "mse_loss"


def gaussian_nll_loss(mean: torch.Tensor, log_variance: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    log_variance_float = log_variance.float()
    error = x.float() - mean.float()
    nll = 0.5 * (log_variance_float + error.square() * torch.exp(-log_variance_float))
    loss = nll.mean()
    return loss
