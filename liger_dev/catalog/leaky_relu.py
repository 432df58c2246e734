"""Leaky ReLU: y = x where x > 0, negative_slope * x elsewhere.

Source: Maas, Hannun and Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def leaky_relu(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    y = torch.where(x > 0, x, negative_slope * x)
    return y
