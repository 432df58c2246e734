"""Group relative policy optimisation: loss = mean over answers of mean over their tokens of -surrogate + beta * kl.

surrogate = min(ratio * advantage, clamp(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantage)
ratio = exp(log_probs - old_log_probs), kl = exp(delta) - delta - 1, delta = reference_log_probs - log_probs

Source: Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", 2024; Yu et
al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", 2025, for the two bounds.
"""

import torch

SHAPES = {
    "log_probs": ("B", "T"),
    "old_log_probs": ("B", "T"),
    "reference_log_probs": ("B", "T"),
    "advantage": ("B",),
    "mask": ("B", "T"),
}
DTYPES = {"mask": "bool"}


def grpo(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    reference_log_probs: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    beta: float = 0.04,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
) -> torch.Tensor:
    ratio = torch.exp(log_probs.float() - old_log_probs.float())
    clipped = ratio.clamp(1.0 - epsilon_low, 1.0 + epsilon_high)
    gain = advantage.float()[:, None]
    surrogate = torch.minimum(ratio * gain, clipped * gain)
    delta = reference_log_probs.float() - log_probs.float()
    kl = torch.exp(delta) - delta - 1.0
    token_loss = torch.where(mask, beta * kl - surrogate, 0.0)
    answer_loss = token_loss.sum(-1) / mask.sum(-1).clamp(min=1)
    loss = answer_loss.mean()
    return loss
