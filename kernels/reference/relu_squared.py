"""Squared ReLU: y = max(x, 0)^2.

Source: So, Mańke, Liu, Dai, Shazeer and Le, "Primer: Searching for Efficient Transformers for Language Modeling", 2021.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}


def relu_squared(x: torch.Tensor) -> torch.Tensor:
    positive = F.relu(x)
    y = positive * positive
    return y
