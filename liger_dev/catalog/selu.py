"""SELU: y = scale * (x where x > 0, alpha * (exp(x) - 1) elsewhere), which keeps mean 0 and variance 1.

Source: Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", 2017.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "elu"


def selu(x: torch.Tensor) -> torch.Tensor:
    y = F.selu(x)
    return y
