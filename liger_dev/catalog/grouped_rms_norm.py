"""RMS normalisation of each group of columns by itself: y = weight * x / rms(x over its group).

Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
Space Duality", 2024, where a group is what one device holds.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "rms_norm"


def grouped_rms_norm(x: torch.Tensor, weight: torch.Tensor, num_groups: int = 2, eps: float = 1e-6) -> torch.Tensor:
    grouped = x.float().unflatten(-1, (num_groups, -1))
    rstd = torch.rsqrt(grouped.square().mean(-1, keepdim=True) + eps)
    x_hat = (grouped * rstd).flatten(-2).to(x.dtype)
    y = weight * x_hat
    return y
