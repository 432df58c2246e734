"""RMS normalisation that a condition modulates: y = weight * x / rms(x) * (1 + scale), one scale a sample.

Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", 2022, with the normalisation of Zhang and
Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",), "scale": ("B", 1, "H")}
PARAMETERS = {"weight": "ones"}


def modulated_rms_norm(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    x_hat = x_float * rstd
    y = weight.float() * x_hat * (1.0 + scale.float())
    return y.to(x.dtype)
