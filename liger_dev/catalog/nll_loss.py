"""Negative log-likelihood of log-probabilities: loss = mean(-log_probs[target]).

Source: Fisher, "On the Mathematical Foundations of Theoretical Statistics", 1922.
"""

import torch

SHAPES = {"log_probs": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def nll_loss(log_probs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    log_prob = log_probs.float().gather(-1, target[:, None]).squeeze(-1)
    loss = -log_prob.mean()
    return loss
