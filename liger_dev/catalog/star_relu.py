"""StarReLU: y = scale * max(x, 0)^2 + shift, scale and shift learned.

Source: Yu, Si, Zhou, Luo, Zhou, Feng, Yan and Wang, "MetaFormer Baselines for Vision", 2022.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H"), "scale": (1,), "shift": (1,)}
PARAMETERS = {"scale": "full(0.8944)", "shift": "full(-0.4472)"}
CLOSEST = "relu_squared"


def star_relu(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    positive = F.relu(x)
    y = scale * positive.square() + shift
    return y
