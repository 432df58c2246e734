"""Kullback-Leibler divergence: loss = mean over rows of sum(exp(target) * (target - log_probs)), both as logarithms.

Source: Kullback and Leibler, "On Information and Sufficiency", 1951.
"""

import torch

SHAPES = {"log_probs": ("N", "V"), "target_log_probs": ("N", "V")}


def kl_div(log_probs: torch.Tensor, target_log_probs: torch.Tensor) -> torch.Tensor:
    target_float = target_log_probs.float()
    divergence = (target_float.exp() * (target_float - log_probs.float())).sum(-1)
    loss = divergence.mean()
    return loss
