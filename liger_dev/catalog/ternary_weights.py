"""Weights rounded to -1, 0 and 1 times one scale, with a straight-through gradient: y = round(x / scale) * scale.

scale = mean(|x|) over the whole tensor

Source: Ma et al., "The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits", 2024.
"""

import torch

SHAPES = {"x": ("K", "H")}
CLOSEST = "quantize_rows"


def ternary_weights(x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    x_float = x.float()
    scale = x_float.abs().mean().clamp(min=eps)
    levels = torch.round(x_float / scale).clamp(-1.0, 1.0)
    y = x_float + (levels * scale - x_float).detach()
    return y.to(x.dtype)
