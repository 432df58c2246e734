"""Dropout by a given mask: y = x / (1 - p) where keep, else 0.

Source: Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, "Dropout: A Simple Way to Prevent Neural Networks
from Overfitting", 2014.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "keep": ("B", "T", "H")}
DTYPES = {"keep": "bool"}


def dropout(x: torch.Tensor, keep: torch.Tensor, p: float = 0.1) -> torch.Tensor:
    y = torch.where(keep, x / (1.0 - p), 0.0)
    return y
