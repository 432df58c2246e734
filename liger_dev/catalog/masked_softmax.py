"""Softmax over the columns that a mask keeps: y = softmax(x where mask) and 0 elsewhere; a row without any is 0.

Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

import torch

SHAPES = {"x": ("B", "T", "V"), "mask": ("B", "T", "V")}
DTYPES = {"mask": "bool"}
CLOSEST = "softmax"


def masked_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    kept = torch.where(mask, x.float(), torch.finfo(torch.float32).min)
    shares = torch.softmax(kept, dim=-1)
    y = torch.where(mask, shares, 0.0)
    return y.to(x.dtype)
