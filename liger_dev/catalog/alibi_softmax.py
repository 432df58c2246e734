"""Causal softmax of attention scores with a linear bias: y = softmax(scale * x - slope * (query - key)).

Keys after the query are left out; the last query sees all keys.

Source: Press, Smith and Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation", 2021.
"""

import torch

SHAPES = {"x": ("B", "N", "T", "S"), "slope": ("N",)}
CLOSEST = "causal_softmax"


def alibi_softmax(x: torch.Tensor, slope: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    queries, keys = x.shape[-2], x.shape[-1]
    query = torch.arange(queries, device=x.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=x.device)
    distance = (query - key).float()
    scores = scale * x.float() - slope.float()[:, None, None] * distance
    y = torch.softmax(scores.masked_fill(key > query, float("-inf")), dim=-1)
    return y.to(x.dtype)
