"""Tanhshrink: y = x - tanh(x).

Source: torch.nn.functional.tanhshrink.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def tanh_shrink(x: torch.Tensor) -> torch.Tensor:
    y = x - torch.tanh(x)
    return y
