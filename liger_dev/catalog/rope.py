"""Rotary position embedding on halves, as in Llama: y = x * cos + rotated(x) * sin, rotated(x1, x2) = (-x2, x1).

The tables cos and sin get no gradient.

Source: Su, Lu, Pan, Murtadha, Wen and Liu, "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
"""

import torch

SHAPES = {"q": ("B", "N", "T", "D"), "k": ("B", "K", "T", "D"), "cos": ("T", "D"), "sin": ("T", "D")}


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = cos.detach(), sin.detach()
    q_first, q_second = q.chunk(2, dim=-1)
    k_first, k_second = k.chunk(2, dim=-1)
    q_turned = q * cos + torch.cat((-q_second, q_first), dim=-1) * sin
    k_turned = k * cos + torch.cat((-k_second, k_first), dim=-1) * sin
    return q_turned, k_turned
