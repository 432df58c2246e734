"""Cross entropy with label smoothing: loss = mean((1 - smoothing) * nll + smoothing * mean over V of -log_probs).

Source: Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, "Rethinking the Inception Architecture for Computer Vision", 2015.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def smoothed_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, smoothing: float = 0.1, ignore_index: int = -100
) -> torch.Tensor:
    kept = target != ignore_index
    label = torch.where(kept, target, 0)
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    nll = -log_probs.gather(-1, label[:, None]).squeeze(-1)
    uniform_nll = -log_probs.mean(-1)
    row_loss = (1.0 - smoothing) * nll + smoothing * uniform_nll
    loss = torch.where(kept, row_loss, 0.0).sum() / kept.sum().clamp(min=1)
    return loss
