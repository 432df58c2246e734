"""Cross entropy of each row, not reduced: nll = logsumexp(logits) - logits[target], 0 where it is ignored.

Source: Good, "Rational Decisions", 1952; Bridle, 1990.
"""

import torch

SHAPES = {"logits": ("B", "T", "V"), "target": ("B", "T")}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def token_cross_entropy(logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100) -> torch.Tensor:
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    logits_float = logits.float()
    log_normalizer = torch.logsumexp(logits_float, dim=-1)
    logit = logits_float.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    nll = torch.where(kept, log_normalizer - logit, 0.0)
    return nll
