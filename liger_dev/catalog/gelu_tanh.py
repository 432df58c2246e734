"""GELU with tanh: y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
"""

import math

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "gelu"


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    y = 0.5 * x * (1.0 + torch.tanh(inner))
    return y
