"""Swish with a learned slope: y = x * sigmoid(beta * x).

Source: Ramachandran, Zoph and Le, "Searching for Activation Functions", 2017.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "beta": (1,)}
PARAMETERS = {"beta": "ones"}
CLOSEST = "silu"


def swish(x: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    y = x * torch.sigmoid(beta * x)
    return y
