"""Multi-class hinge loss: loss = mean over rows of sum over other classes of max(margin - x[target] + x, 0) / V.

Source: Crammer and Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", 2001.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def multi_margin_loss(logits: torch.Tensor, target: torch.Tensor, margin: float = 1.0) -> torch.Tensor:
    logits_float = logits.float()
    label_logit = logits_float.gather(-1, target[:, None])
    columns = torch.arange(logits.shape[-1], device=logits.device)
    violation = (margin - label_logit + logits_float).clamp(min=0.0)
    others = torch.where(columns == target[:, None], 0.0, violation)
    loss = others.mean(-1).mean()
    return loss
