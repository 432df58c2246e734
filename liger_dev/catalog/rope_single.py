"""Rotary position embedding of one tensor, with the heads after the positions: y = x * cos + rotated(x) * sin.

rotated(x1, x2) = (-x2, x1), where x1 and x2 are the halves of x

The tables cos and sin get no gradient.

Source: Su, Lu, Pan, Murtadha, Wen and Liu, "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
"""

import torch

SHAPES = {"x": ("B", "T", "N", "D"), "cos": ("B", "T", 1, "D"), "sin": ("B", "T", 1, "D")}
CLOSEST = "rope"


def rope_single(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    cos, sin = cos.detach(), sin.detach()
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    y = x * cos + rotated * sin
    return y
