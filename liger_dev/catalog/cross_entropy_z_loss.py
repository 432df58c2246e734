"""Cross entropy with a penalty on the normaliser: loss = mean(nll + z_weight * logsumexp(logits)^2).

Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def cross_entropy_z_loss(
    logits: torch.Tensor, target: torch.Tensor, z_weight: float = 1e-4, ignore_index: int = -100
) -> torch.Tensor:
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    logits_float = logits.float()
    log_normalizer = torch.logsumexp(logits_float, dim=-1)
    nll = log_normalizer - logits_float.gather(-1, label[:, None]).squeeze(-1)
    row_loss = nll + z_weight * log_normalizer.square()
    loss = torch.where(kept, row_loss, 0.0).sum() / kept.sum().clamp(min=1)
    return loss
