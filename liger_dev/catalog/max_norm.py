"""Division by the largest magnitude of a row: y = x / max(max(|x|), eps).

Source: torch.nn.functional.normalize with p = inf.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "l2_norm"


def max_norm(x: torch.Tensor, eps: float = 1e-12) -> torch.Tensor:
    x_float = x.float()
    norm = x_float.abs().amax(-1, keepdim=True).clamp(min=eps)
    y = (x_float / norm).to(x.dtype)
    return y
