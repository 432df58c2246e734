"""Ranking loss: loss = mean(max(margin - order * (first - second), 0)), order 1 or -1.

Source: torch.nn.functional.margin_ranking_loss.
"""

import torch

SHAPES = {"first": ("N",), "second": ("N",), "order": ("N",)}
CLOSEST = "reward_loss"


def margin_ranking_loss(
    first: torch.Tensor, second: torch.Tensor, order: torch.Tensor, margin: float = 0.5
) -> torch.Tensor:
    difference = order.float() * (first.float() - second.float())
    loss = (margin - difference).clamp(min=0.0).mean()
    return loss
