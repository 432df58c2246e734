"""Cross entropy, each token weighted by its own probability without its gradient: loss = mean(detach(p) * -log(p)).

Source: Wu et al., "On the Generalization of SFT: A Reinforcement Learning Perspective with Reward Rectification", 2025.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def dynamic_fine_tuning(logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100) -> torch.Tensor:
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    log_prob = log_probs.gather(-1, label[:, None]).squeeze(-1)
    row_loss = -log_prob.detach().exp() * log_prob
    loss = torch.where(kept, row_loss, 0.0).sum() / kept.sum().clamp(min=1)
    return loss
