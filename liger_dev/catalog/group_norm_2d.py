"""Group normalisation of images: y = (x - mean) / sqrt(var + eps) * weight + bias.

mean and var are over a group of channels and all pixels

Source: Wu and He, "Group Normalization", 2018.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "C", "Y", "X"), "weight": ("C",), "bias": ("C",)}
PARAMETERS = {"weight": "ones", "bias": "zeros"}
CLOSEST = "group_norm"


def group_norm_2d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, num_groups: int = 2, eps: float = 1e-5
) -> torch.Tensor:
    y = F.group_norm(x, num_groups, weight, bias, eps)
    return y
