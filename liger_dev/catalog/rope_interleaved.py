"""Rotary position embedding on neighbouring pairs, as in GPT-J: y = x * cos + rotated(x) * sin.

rotated(x) has -x[2i + 1] at 2i and x[2i] at 2i + 1

The tables cos and sin get no gradient.

Source: Su, Lu, Pan, Murtadha, Wen and Liu, "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
"""

import torch

SHAPES = {"x": ("B", "N", "T", "D"), "cos": ("T", "D"), "sin": ("T", "D")}
CLOSEST = "rope"


def rope_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    cos, sin = cos.detach(), sin.detach()
    even, odd = x[..., ::2], x[..., 1::2]
    rotated = torch.stack((-odd, even), dim=-1).flatten(-2)
    y = x * cos + rotated * sin
    return y
