"""RMS normalisation as in Gemma, y = (1 + weight) * x / rms(x): everything in float32, cast back at the end.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; Gemma Team, "Gemma: Open Models Based on
Gemini Research and Technology", 2024.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "zeros"}


def gemma_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    x_hat = x_float * rstd
    y = (1.0 + weight.float()) * x_hat
    return y.to(x.dtype)
