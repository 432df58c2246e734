"""Layer normalisation over channels that stand first: y = (x - mean) / sqrt(var + eps) * weight + bias.

Source: Liu, Mao, Wu, Feichtenhofer, Darrell and Xie, "A ConvNet for the 2020s", 2022.
"""

import torch

SHAPES = {"x": ("B", "C", "Y", "X"), "weight": ("C",), "bias": ("C",)}
PARAMETERS = {"weight": "ones", "bias": "zeros"}
CLOSEST = "layer_norm"


def channels_first_layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6
) -> torch.Tensor:
    x_float = x.float()
    centered = x_float - x_float.mean(1, keepdim=True)
    rstd = torch.rsqrt(centered.square().mean(1, keepdim=True) + eps)
    x_hat = centered * rstd
    y = x_hat * weight.float()[:, None, None] + bias.float()[:, None, None]
    return y.to(x.dtype)
