"""RMS normalisation over channels that stand before the positions: y = weight * x / rms(x over channels).

Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, as video and audio codecs apply it.
"""

import torch

SHAPES = {"x": ("B", "C", "T"), "weight": ("C",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "rms_norm"


def channels_first_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(1, keepdim=True) + eps)
    x_hat = x_float * rstd
    y = weight.float()[:, None] * x_hat
    return y.to(x.dtype)
