"""Softsign: y = x / (1 + |x|).

Source: Turian, Bergstra and Bengio, "Quadratic Features and Deep Architectures for Chunking", 2009.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def soft_sign(x: torch.Tensor) -> torch.Tensor:
    y = x / (1.0 + x.abs())
    return y
