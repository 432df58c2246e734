"""PReLU with a slope a channel: y = x where x > 0, weight * x elsewhere.

Source: He, Zhang, Ren and Sun, "Delving Deep into Rectifiers: Surpassing Human-Level Performance on ImageNet
Classification", 2015.
"""

import torch

SHAPES = {"x": ("B", "C", "T"), "weight": ("C",)}
PARAMETERS = {"weight": "full(0.25)"}


def prelu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = torch.where(x > 0, x, weight[:, None] * x)
    return y
