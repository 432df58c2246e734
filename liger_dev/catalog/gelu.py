"""GELU, exact: y = x / 2 * (1 + erf(x / sqrt(2))).

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}


def gelu(x: torch.Tensor) -> torch.Tensor:
    y = F.gelu(x)
    return y
