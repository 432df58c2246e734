"""Group sequence policy optimisation: loss = mean over answers of -min(ratio * advantage, clipped * advantage).

ratio = exp(mean over the answer's tokens of log_probs - old_log_probs), clipped to 1 - epsilon .. 1 + epsilon

Source: Zheng et al., "Group Sequence Policy Optimization", 2025.
"""

import torch

SHAPES = {"log_probs": ("B", "T"), "old_log_probs": ("B", "T"), "advantage": ("B",), "mask": ("B", "T")}
DTYPES = {"mask": "bool"}
CLOSEST = "grpo"


def gspo(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    epsilon: float = 0.2,
) -> torch.Tensor:
    log_ratio = torch.where(mask, log_probs.float() - old_log_probs.float(), 0.0)
    ratio = torch.exp(log_ratio.sum(-1) / mask.sum(-1).clamp(min=1))
    clipped = ratio.clamp(1.0 - epsilon, 1.0 + epsilon)
    gain = advantage.float()
    loss = -torch.minimum(ratio * gain, clipped * gain).mean()
    return loss
