"""Cross entropy with a distribution as target: loss = mean over rows of -sum(target * log_softmax(logits)).

Source: torch.nn.functional.cross_entropy with probabilities; mixup, Zhang, Cisse, Dauphin and Lopez-Paz, 2017.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N", "V")}
CLOSEST = "cross_entropy"


def soft_target_cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    row_loss = -(target.float() * log_probs).sum(-1)
    loss = row_loss.mean()
    return loss
