"""RMS normalisation of a branch, then the residual addition: y = residual + weight * x / rms(x).

Source: Team OLMo, "2 OLMo 2 Furious", 2024, which normalises what attention and the feed-forward layer give.
"""

import torch

SHAPES = {"residual": ("B", "T", "H"), "x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "fused_add_rms_norm"


def post_norm_residual(
    residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    x_hat = (x_float * rstd).to(x.dtype)
    y = residual + weight * x_hat
    return y
