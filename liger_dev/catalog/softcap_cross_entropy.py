"""Cross entropy of softly capped logits: loss = mean(nll of cap * tanh(logits / cap)).

Source: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def softcap_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, cap: float = 30.0, ignore_index: int = -100
) -> torch.Tensor:
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    capped = cap * torch.tanh(logits.float() / cap)
    log_probs = torch.log_softmax(capped, dim=-1)
    nll = -log_probs.gather(-1, label[:, None]).squeeze(-1)
    loss = torch.where(kept, nll, 0.0).sum() / kept.sum().clamp(min=1)
    return loss
