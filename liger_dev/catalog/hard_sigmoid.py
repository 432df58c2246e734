"""Hard sigmoid: y = clamp(x + 3, 0, 6) / 6.

Source: Courbariaux, Bengio and David, "BinaryConnect: Training Deep Neural Networks with Binary Weights during
Propagations", 2015.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "hard_swish"


def hard_sigmoid(x: torch.Tensor) -> torch.Tensor:
    y = (x + 3.0).clamp(0.0, 6.0) / 6.0
    return y
