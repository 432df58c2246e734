"""Division by the Euclidean norm over the last dimension: y = x / sqrt(sum(x^2) + eps).

Source: used on queries and keys by Henry, Dachapally, Pawar and Chen, "Query-Key Normalization for Transformers", 2020.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def l2_norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    inverse_norm = torch.rsqrt(x_float.square().sum(-1, keepdim=True) + eps)
    y = (x_float * inverse_norm).to(x.dtype)
    return y
