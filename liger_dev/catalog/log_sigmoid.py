"""Logarithm of the sigmoid: y = -log(1 + exp(-x)).

Source: torch.nn.functional.logsigmoid.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "softplus"


def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    y = F.logsigmoid(x)
    return y
