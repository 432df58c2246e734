"""RMS normalisation without any cast: y = weight * x / rms(x), all of it in the input's own dtype.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "rms_norm"


def rms_norm_uncast(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    x_hat = x * rstd
    y = weight * x_hat
    return y
