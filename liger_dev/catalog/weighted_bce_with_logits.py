"""Binary cross entropy with a weight for positives: loss = mean(-(pos_weight * t * log(s) + (1 - t) * log(1 - s))).

s = sigmoid(logits), t = target, pos_weight one a column

Source: torch.nn.functional.binary_cross_entropy_with_logits with pos_weight.
"""

import torch
import torch.nn.functional as F

SHAPES = {"logits": ("N", "H"), "target": ("N", "H"), "pos_weight": ("H",)}
CLOSEST = "bce_with_logits"


def weighted_bce_with_logits(logits: torch.Tensor, target: torch.Tensor, pos_weight: torch.Tensor) -> torch.Tensor:
    x, t = logits.float(), target.float()
    positive = pos_weight.float() * t * F.logsigmoid(x)
    negative = (1.0 - t) * F.logsigmoid(-x)
    loss = -(positive + negative).mean()
    return loss
