"""Cosine of the angle between rows: similarity = sum(x * y) / (max(norm(x), eps) * max(norm(y), eps)).

Source: Salton, Wong and Yang, "A Vector Space Model for Automatic Indexing", 1975;
torch.nn.functional.cosine_similarity for the bound of the norms.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "y": ("B", "T", "H")}


def cosine_similarity(x: torch.Tensor, y: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    x_float, y_float = x.float(), y.float()
    x_norm = torch.sqrt(x_float.square().sum(-1)).clamp(min=eps)
    y_norm = torch.sqrt(y_float.square().sum(-1)).clamp(min=eps)
    dot = (x_float * y_float).sum(-1)
    similarity = dot / (x_norm * y_norm)
    return similarity.to(x.dtype)
