"""Softmax of scaled attention scores over the keys up to the query's own: y = softmax(scale * x where key <= query).

The last query sees all keys: key <= query + keys - queries.

Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import torch

SHAPES = {"x": ("B", "N", "T", "S")}
CLOSEST = "softmax"


def causal_softmax(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    queries, keys = x.shape[-2], x.shape[-1]
    query = torch.arange(queries, device=x.device)[:, None]
    key = torch.arange(keys, device=x.device)
    hidden = key > query + (keys - queries)
    scores = (scale * x.float()).masked_fill(hidden, float("-inf"))
    y = torch.softmax(scores, dim=-1)
    return y.to(x.dtype)
