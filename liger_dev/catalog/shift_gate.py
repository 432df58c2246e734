"""A gate from a neighbouring channel: y = x * sigmoid(rolled(x)), where rolled moves each row by one column.

Source: torch.roll as a mixing step, as in Lian, Yu, Sun and Gao, "AS-MLP: An Axial Shifted MLP Architecture for
Vision", 2021.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def shift_gate(x: torch.Tensor) -> torch.Tensor:
    rolled = torch.roll(x, shifts=1, dims=-1)
    y = x * torch.sigmoid(rolled)
    return y
