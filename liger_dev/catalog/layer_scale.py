"""A residual branch with a learned scale a channel: y = residual + gamma * x.

Source: Touvron, Cord, Sablayrolles, Synnaeve and Jegou, "Going Deeper with Image Transformers", 2021.
"""

import torch

SHAPES = {"residual": ("B", "T", "H"), "x": ("B", "T", "H"), "gamma": ("H",)}
PARAMETERS = {"gamma": "full(1e-05)"}


def layer_scale(residual: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    y = residual + gamma * x
    return y
