"""Policy gradient with an entropy bonus, from logits: loss = -mean(advantage * log_prob + weight * entropy).

log_prob = log_softmax(logits)[action], entropy = -sum(softmax(logits) * log_softmax(logits))

Source: Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016.
"""

import torch

SHAPES = {"logits": ("N", "V"), "action": ("N",), "advantage": ("N",)}
DTYPES = {"action": "int"}
RANGES = {"action": "V"}
CLOSEST = "log_prob_and_entropy"


def entropy_bonus_loss(
    logits: torch.Tensor, action: torch.Tensor, advantage: torch.Tensor, weight: float = 0.01
) -> torch.Tensor:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    loss = -(advantage.float() * log_prob + weight * entropy).mean()
    return loss
