"""Focal loss, which weighs easy rows down: loss = mean(-alpha * (1 - p)^gamma * log(p)), p = softmax(logits)[target].

Source: Lin, Goyal, Girshick, He and Dollar, "Focal Loss for Dense Object Detection", 2017.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def focal_loss(logits: torch.Tensor, target: torch.Tensor, alpha: float = 0.25, gamma: float = 2.0) -> torch.Tensor:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    log_prob = log_probs.gather(-1, target[:, None]).squeeze(-1)
    difficulty = (1.0 - log_prob.exp()).pow(gamma)
    loss = (-alpha * difficulty * log_prob).mean()
    return loss
