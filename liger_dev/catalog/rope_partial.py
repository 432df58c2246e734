"""Rotary position embedding of the first columns, as many as cos has; the others stay: y = (turned(x1), x2).

turned(x1) = x1 * cos + rotated(x1) * sin, where rotated swaps the halves of x1 and negates the first

The tables cos and sin get no gradient.

Source: Su, Lu, Pan, Murtadha, Wen and Liu, "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021;
partial as in GPT-NeoX.
"""

import torch

SHAPES = {"cos": ("T", "R"), "sin": ("T", "R"), "x": ("B", "N", "T", "D")}
CLOSEST = "rope"


def rope_partial(cos: torch.Tensor, sin: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cos, sin = cos.detach(), sin.detach()
    width = cos.shape[-1]
    turning, passing = x[..., :width], x[..., width:]
    first, second = turning.chunk(2, dim=-1)
    turned = turning * cos + torch.cat((-second, first), dim=-1) * sin
    y = torch.cat((turned, passing), dim=-1)
    return y
