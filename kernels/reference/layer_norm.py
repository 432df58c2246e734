"""Layer normalisation over the last dimension: y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",), "bias": ("H",)}
PARAMETERS = {"weight": "ones", "bias": "zeros"}


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    x_float = x.float()
    mean = x_float.mean(-1, keepdim=True)
    centered = x_float - mean
    variance = centered.square().mean(-1, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    x_hat = centered * rstd
    y = x_hat
    if weight is not None:
        y = y * weight.float()
    if bias is not None:
        y = y + bias.float()
    return y.to(x.dtype)
