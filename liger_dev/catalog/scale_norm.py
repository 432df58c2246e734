"""Division by the Euclidean norm with one learned scale: y = scale * x / max(norm(x), eps).

Source: Nguyen and Salazar, "Transformers without Tears: Improving the Normalization of Self-Attention", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "scale": (1,)}
PARAMETERS = {"scale": "ones"}
CLOSEST = "l2_norm"


def scale_norm(x: torch.Tensor, scale: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    x_float = x.float()
    norm = torch.sqrt(x_float.square().sum(-1, keepdim=True)).clamp(min=eps)
    y = scale.float() * x_float / norm
    return y.to(x.dtype)
