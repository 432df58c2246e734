"""RMS normalisation without a weight: y = x / rms(x), computed in float32.

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "rms_norm"


def rms_norm_no_weight(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    y = (x_float * rstd).to(x.dtype)
    return y
