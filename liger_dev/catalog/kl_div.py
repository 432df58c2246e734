"""Kullback-Leibler divergence: loss = mean over rows of sum(exp(target) * (target - log_probs)), both as logarithms.

Source: Kullback and Leibler, "On Information and Sufficiency", 1951.
"""

import torch

SHAPES = {"log_probs": ("N", "V"), "target_log_probs": ("N", "V")}


def kl_div(log_probs: torch.Tensor, target_log_probs: torch.Tensor) -> torch.Tensor:
    # Below -80 a probability is 0 to float32; with -inf, 0 * log(0) would be no number.
    target_bounded = target_log_probs.float().clamp(min=-80.0)
    divergence = (target_bounded.exp() * (target_bounded - log_probs.float())).sum(-1)
    loss = divergence.mean()
    return loss
