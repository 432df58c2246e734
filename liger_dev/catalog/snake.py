"""Snake, a periodic activation with a frequency a channel: y = x + sin(alpha * x)^2 / (alpha + eps).

Source: Ziyin, Hartwig and Ueda, "Neural Networks Fail to Learn Periodic Functions and How to Fix It", 2020.
"""

import torch

SHAPES = {"x": ("B", "C", "T"), "alpha": ("C",)}
PARAMETERS = {"alpha": "ones"}


def snake(x: torch.Tensor, alpha: torch.Tensor, eps: float = 1e-9) -> torch.Tensor:
    alpha_float = alpha.float()[:, None]
    wave = torch.sin(alpha_float * x.float())
    y = x.float() + wave * wave / (alpha_float + eps)
    return y.to(x.dtype)
