"""Dice loss of each sample's map: loss = mean(1 - (2 * sum(p * target) + eps) / (sum(p) + sum(target) + eps)).

p = sigmoid(logits)

Source: Milletari, Navab and Ahmadi, "V-Net: Fully Convolutional Neural Networks for Volumetric Medical Image
Segmentation", 2016.
"""

import torch

SHAPES = {"logits": ("B", "Y", "X"), "target": ("B", "Y", "X")}
DTYPES = {"target": "bool"}


def dice_loss(logits: torch.Tensor, target: torch.Tensor, eps: float = 1.0) -> torch.Tensor:
    p, t = torch.sigmoid(logits.float()), target.float()
    overlap = (p * t).sum((1, 2))
    total = p.sum((1, 2)) + t.sum((1, 2))
    loss = (1.0 - (2.0 * overlap + eps) / (total + eps)).mean()
    return loss
