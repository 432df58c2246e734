"""Softmax over the columns below each sample's length: y = softmax(x where column < length) and 0 elsewhere.

Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import torch

SHAPES = {"x": ("B", "T", "V"), "length": ("B",)}
DTYPES = {"length": "int"}
RANGES = {"length": "V"}
CLOSEST = "softmax"


def padding_softmax(x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    columns = torch.arange(x.shape[-1], device=x.device)
    kept = columns < length[:, None, None]
    scores = torch.where(kept, x.float(), torch.finfo(torch.float32).min)
    y = torch.where(kept, torch.softmax(scores, dim=-1), 0.0)
    return y.to(x.dtype)
