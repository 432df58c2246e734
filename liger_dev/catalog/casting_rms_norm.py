"""RMS normalisation, y = weight * x / rms(x), cast before the weight (llama), at the end (gemma) or not at all.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

from typing import Literal

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "rms_norm"


def casting_rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, casting_mode: Literal["llama", "gemma", "none"] = "llama"
) -> torch.Tensor:
    x_float = x if casting_mode == "none" else x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    x_hat = x_float * rstd
    if casting_mode == "gemma":
        return (weight.float() * x_hat).to(x.dtype)
    return weight * x_hat.to(x.dtype)
