"""Cross entropy over the vocabulary: loss = mean over kept rows of logsumexp(logits) - logits[target].

Rows whose target is ignore_index are left out; with none left, the loss is 0.

Source: Good, "Rational Decisions", 1952; Bridle, 1990.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100) -> torch.Tensor:
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    nll = -log_probs.gather(-1, label[:, None]).squeeze(-1)
    loss = torch.where(kept, nll, 0.0).sum() / kept.sum().clamp(min=1)
    return loss
