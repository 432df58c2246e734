"""Division by the sum of magnitudes over the last dimension: y = x / max(sum(|x|), eps).

Source: torch.nn.functional.normalize with p = 1.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "l2_norm"


def l1_norm(x: torch.Tensor, eps: float = 1e-12) -> torch.Tensor:
    x_float = x.float()
    norm = x_float.abs().sum(-1, keepdim=True).clamp(min=eps)
    y = (x_float / norm).to(x.dtype)
    return y
