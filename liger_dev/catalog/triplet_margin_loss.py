"""Triplet loss: loss = mean(max(|anchor - positive| - |anchor - negative| + margin, 0)), Euclidean distances of rows.

Source: Schroff, Kalenichenko and Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering", 2015.
"""

import torch

SHAPES = {"anchor": ("N", "H"), "positive": ("N", "H"), "negative": ("N", "H")}


def triplet_margin_loss(
    anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, margin: float = 1.0, eps: float = 1e-6
) -> torch.Tensor:
    anchor_float = anchor.float()
    positive_distance = torch.sqrt((anchor_float - positive.float() + eps).square().sum(-1))
    negative_distance = torch.sqrt((anchor_float - negative.float() + eps).square().sum(-1))
    loss = (positive_distance - negative_distance + margin).clamp(min=0.0).mean()
    return loss
