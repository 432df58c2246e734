"""Squareplus, an algebraic softplus: y = (x + sqrt(x^2 + b)) / 2.

Source: Barron, "Squareplus: A Softplus-Like Algebraic Rectifier", 2021.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "softplus"


def square_plus(x: torch.Tensor, b: float = 4.0) -> torch.Tensor:
    y = 0.5 * (x + torch.sqrt(x * x + b))
    return y
