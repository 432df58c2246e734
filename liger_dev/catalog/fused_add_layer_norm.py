"""Residual addition, then layer normalisation: summed = x + residual, y = weight * normalised(summed) + bias.

normalised(s) = (s - mean(s)) / sqrt(var(s) + eps)

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016; pre-norm residual blocks as in GPT-2.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "residual": ("B", "T", "H"), "weight": ("H",), "bias": ("H",)}
PARAMETERS = {"weight": "ones", "bias": "zeros"}
CLOSEST = "fused_add_rms_norm"


def fused_add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    summed = x + residual
    summed_float = summed.float()
    centered = summed_float - summed_float.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
    summed_hat = centered * rstd
    y = (weight.float() * summed_hat + bias.float()).to(x.dtype)
    return y, summed
