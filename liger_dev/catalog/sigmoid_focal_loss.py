"""Focal loss of binary logits: loss = mean(balance * (1 - p_t)^gamma * bce), p_t = the probability of the target.

bce = max(x, 0) - x * target + log(1 + exp(-|x|)), balance = alpha * target + (1 - alpha) * (1 - target)

Source: Lin, Goyal, Girshick, He and Dollar, "Focal Loss for Dense Object Detection", 2017.
"""

import torch

SHAPES = {"logits": ("N", "H"), "target": ("N", "H")}
DTYPES = {"target": "bool"}
CLOSEST = "bce_with_logits"


def sigmoid_focal_loss(
    logits: torch.Tensor, target: torch.Tensor, alpha: float = 0.25, gamma: float = 2.0
) -> torch.Tensor:
    x, t = logits.float(), target.float()
    probability = torch.sigmoid(x)
    bce = x.clamp(min=0.0) - x * t + torch.log1p(torch.exp(-x.abs()))
    miss = probability * (1.0 - t) + (1.0 - probability) * t
    balance = alpha * t + (1.0 - alpha) * (1.0 - t)
    loss = (balance * miss.pow(gamma) * bce).mean()
    return loss
