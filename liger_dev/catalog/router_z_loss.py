"""The penalty on large router logits: loss = mean(logsumexp(logits)^2).

Source: Zoph et al., "ST-MoE: Designing Stable and Transferable Sparse Expert Models", 2022.
"""

import torch

SHAPES = {"logits": ("N", "K")}


def router_z_loss(logits: torch.Tensor) -> torch.Tensor:
    log_normalizer = torch.logsumexp(logits.float(), dim=-1)
    loss = log_normalizer.square().mean()
    return loss
