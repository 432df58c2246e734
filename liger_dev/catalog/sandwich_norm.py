"""Norms on both sides of a residual addition: summed = residual + norm(x, post_weight), y = norm(summed, pre_weight).

norm(x, weight) = (1 + weight) * x / rms(x)

Source: Ding et al., "CogView: Mastering Text-to-Image Generation via Transformers", 2021; Gemma Team, "Gemma 2:
Improving Open Language Models at a Practical Size", 2024.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "residual": ("B", "T", "H"), "post_weight": ("H",), "pre_weight": ("H",)}
PARAMETERS = {"post_weight": "zeros", "pre_weight": "zeros"}
CLOSEST = "fused_add_rms_norm"


def sandwich_norm(
    x: torch.Tensor, residual: torch.Tensor, post_weight: torch.Tensor, pre_weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    x_float = x.float()
    x_rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    branch = ((1.0 + post_weight.float()) * (x_float * x_rstd)).to(x.dtype)
    summed = residual + branch
    summed_float = summed.float()
    summed_rstd = torch.rsqrt(summed_float.square().mean(-1, keepdim=True) + eps)
    y = ((1.0 + pre_weight.float()) * (summed_float * summed_rstd)).to(x.dtype)
    return y, summed
