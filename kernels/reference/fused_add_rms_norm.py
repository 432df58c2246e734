"""Residual addition, then RMS normalisation: summed = x + residual, y = weight * summed / rms(summed).

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; pre-norm residual blocks as in Llama.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "residual": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    summed = x + residual
    summed_float = summed.float()
    rstd = torch.rsqrt(summed_float.square().mean(-1, keepdim=True) + eps)
    summed_hat = (summed_float * rstd).to(summed.dtype)
    y = weight * summed_hat
    return y, summed
