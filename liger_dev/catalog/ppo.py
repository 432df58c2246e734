"""Proximal policy optimisation over all kept tokens: loss = -mean(min(ratio * advantage, clipped * advantage)).

ratio = exp(log_probs - old_log_probs), clipped to 1 - epsilon .. 1 + epsilon

Source: Schulman, Wolski, Dhariwal, Radford and Klimov, "Proximal Policy Optimization Algorithms", 2017.
"""

import torch

SHAPES = {"log_probs": ("B", "T"), "old_log_probs": ("B", "T"), "advantage": ("B", "T"), "mask": ("B", "T")}
DTYPES = {"mask": "bool"}
CLOSEST = "grpo"


def ppo(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    epsilon: float = 0.2,
) -> torch.Tensor:
    ratio = torch.exp(log_probs.float() - old_log_probs.float())
    clipped = ratio.clamp(1.0 - epsilon, 1.0 + epsilon)
    gain = advantage.float()
    surrogate = torch.minimum(ratio * gain, clipped * gain)
    loss = -torch.where(mask, surrogate, 0.0).sum() / mask.sum().clamp(min=1)
    return loss
