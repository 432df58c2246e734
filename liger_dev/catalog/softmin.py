"""Softmin over the last dimension: y = exp(-x) / sum(exp(-x)).

Source: torch.nn.functional.softmin.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}
CLOSEST = "softmax"


def softmin(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(-x, dim=-1)
    return y
