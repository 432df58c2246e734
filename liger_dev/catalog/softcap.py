"""Soft cap of scores or logits: y = cap * tanh(x / cap).

Source: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}


def softcap(x: torch.Tensor, cap: float = 30.0) -> torch.Tensor:
    y = cap * torch.tanh(x / cap)
    return y
