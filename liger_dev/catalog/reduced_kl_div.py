"""Kullback-Leibler divergence of rows, loss = target * (log(target) - log_probs), reduced as asked; log_target says
that the target is a logarithm too.

Source: Kullback and Leibler, "On Information and Sufficiency", 1951.
"""

import torch

SHAPES = {"log_probs": ("N", "V"), "target": ("N", "V")}
CLOSEST = "kl_div"


def reduced_kl_div(
    log_probs: torch.Tensor, target: torch.Tensor, reduction: str = "batchmean", log_target: bool = True
) -> torch.Tensor:
    if log_target:
        loss = target.exp() * (target - log_probs)
    else:
        loss = target * (target.clamp(min=1e-10).log() - log_probs)
    if reduction == "sum":
        loss = loss.sum()
    elif reduction == "mean":
        loss = loss.mean()
    elif reduction == "batchmean":
        loss = loss.sum() / log_probs.shape[0]
    return loss
