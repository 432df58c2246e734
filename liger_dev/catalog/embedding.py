"""Rows of a table by index: y = weight[index]; a row's gradient is the sum over the places that took it.

Source: Bengio, Ducharme, Vincent and Jauvin, "A Neural Probabilistic Language Model", 2003.
"""

import torch
import torch.nn.functional as F

SHAPES = {"weight": ("V", "H"), "index": ("B", "T")}
PARAMETERS = {"weight": "normal"}
DTYPES = {"index": "int"}
RANGES = {"index": "V"}


def embedding(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    y = F.embedding(index, weight)
    return y
