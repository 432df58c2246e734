"""Softmax over the last dimension: y = exp(x - max(x)) / sum(exp(x - max(x))).

Source: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}


def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, dim=-1)
    return y
