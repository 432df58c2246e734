"""Negative log-likelihood of Poisson distributions: loss = mean(exp(log_rate) - target * log_rate) + constant.

Source: torch.nn.functional.poisson_nll_loss.
"""

import torch

SHAPES = {"log_rate": ("N", "H"), "target": ("N", "H")}
CLOSEST = "mse_loss"


def poisson_nll_loss(log_rate: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    log_rate_float = log_rate.float()
    loss = (log_rate_float.exp() - target.float() * log_rate_float).mean()
    return loss
