"""Binary cross entropy of logits: loss = mean(max(x, 0) - x * target + log(1 + exp(-|x|))).

Source: torch.nn.functional.binary_cross_entropy_with_logits.
"""

import torch

SHAPES = {"logits": ("N", "H"), "target": ("N", "H")}


def bce_with_logits(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    x = logits.float()
    loss = (x.clamp(min=0.0) - x * target.float() + torch.log1p(torch.exp(-x.abs()))).mean()
    return loss
