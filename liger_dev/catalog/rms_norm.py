"""RMS normalisation over the last dimension, as in Llama: normalised in float32, cast back, then scaled.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, offset: float = 0.0) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    x_hat = (x_float * rstd).to(x.dtype)
    y = (offset + weight) * x_hat
    return y
