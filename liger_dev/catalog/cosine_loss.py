"""Cosine distance of hidden states: loss = mean(1 - sum(x * y) / (max(norm(x), eps) * max(norm(y), eps))).

Source: Sanh, Debut, Chaumond and Wolf, "DistilBERT, a Distilled Version of BERT", 2019.
"""

import torch

SHAPES = {"x": ("N", "H"), "y": ("N", "H")}
CLOSEST = "cosine_similarity"


def cosine_loss(x: torch.Tensor, y: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    x_float, y_float = x.float(), y.float()
    x_norm = torch.sqrt(x_float.square().sum(-1)).clamp(min=eps)
    y_norm = torch.sqrt(y_float.square().sum(-1)).clamp(min=eps)
    similarity = (x_float * y_float).sum(-1) / (x_norm * y_norm)
    loss = (1.0 - similarity).mean()
    return loss
