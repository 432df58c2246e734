"""Group normalisation, then SiLU, as in diffusion networks: y = normed * sigmoid(normed).

normed = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var over a group of channels and all pixels

Source: Wu and He, "Group Normalization", 2018; Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion
Models", 2021.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "C", "Y", "X"), "weight": ("C",), "bias": ("C",)}
PARAMETERS = {"weight": "ones", "bias": "zeros"}
CLOSEST = "group_norm"


def group_norm_silu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int = 2, eps: float = 1e-6
) -> torch.Tensor:
    grouped = x.float().unflatten(1, (num_groups, -1))
    centered = grouped - grouped.mean((2, 3, 4), keepdim=True)
    rstd = torch.rsqrt(centered.square().mean((2, 3, 4), keepdim=True) + eps)
    x_hat = (centered * rstd).flatten(1, 2)
    normed = x_hat * weight.float()[:, None, None] + bias.float()[:, None, None]
    y = F.silu(normed)
    return y.to(x.dtype)
