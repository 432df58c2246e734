"""Group normalisation over a group of channels and all positions: y = (x - mean) / sqrt(var + eps) * weight + bias.

Source: Wu and He, "Group Normalization", 2018.
"""

import torch

SHAPES = {"x": ("B", "C", "T"), "weight": ("C",), "bias": ("C",)}
PARAMETERS = {"weight": "ones", "bias": "zeros"}
CLOSEST = "layer_norm"


def group_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int = 2, eps: float = 1e-5
) -> torch.Tensor:
    grouped = x.float().reshape(x.shape[0], num_groups, -1)
    centered = grouped - grouped.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
    x_hat = (centered * rstd).reshape(x.shape)
    y = x_hat * weight.float()[:, None] + bias.float()[:, None]
    return y.to(x.dtype)
