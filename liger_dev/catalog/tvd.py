"""Total variation distance of two distributions: loss = mean over rows of sum(|p - q|) / 2.

Source: Wen, Li, Du and Mou, "f-Divergence Minimization for Sequence-Level Knowledge Distillation", 2023.
"""

import torch

SHAPES = {"p": ("N", "V"), "q": ("N", "V")}
CLOSEST = "kl_div"


def tvd(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    distance = 0.5 * (p.float() - q.float()).abs().sum(-1)
    loss = distance.mean()
    return loss
