"""Clipped value loss: loss = mean(max((value - target)^2, (clipped - target)^2)) / 2.

clipped = old_value + clamp(value - old_value, -epsilon, epsilon)

Source: Schulman, Wolski, Dhariwal, Radford and Klimov, "Proximal Policy Optimization Algorithms", 2017, as in OpenAI's
baselines.
"""

import torch

SHAPES = {"value": ("B", "T"), "old_value": ("B", "T"), "target": ("B", "T"), "mask": ("B", "T")}
DTYPES = {"mask": "bool"}
CLOSEST = "ppo"


def ppo_value_loss(
    value: torch.Tensor, old_value: torch.Tensor, target: torch.Tensor, mask: torch.Tensor, epsilon: float = 0.2
) -> torch.Tensor:
    change = value.float() - old_value.float()
    clipped = old_value.float() + change.clamp(-epsilon, epsilon)
    squared = (value.float() - target.float()).square()
    clipped_squared = (clipped - target.float()).square()
    token_loss = 0.5 * torch.maximum(squared, clipped_squared)
    loss = torch.where(mask, token_loss, 0.0).sum() / mask.sum().clamp(min=1)
    return loss
