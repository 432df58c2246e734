"""ReLU with a ceiling: y = min(max(x, 0), 6).

Source: Krizhevsky, "Convolutional Deep Belief Networks on CIFAR-10", 2010.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def relu6(x: torch.Tensor) -> torch.Tensor:
    y = x.clamp(0.0, 6.0)
    return y
