"""GELU by a logistic curve: y = x * sigmoid(1.702 * x).

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; as in CLIP.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "gelu"


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    y = x * torch.sigmoid(1.702 * x)
    return y
