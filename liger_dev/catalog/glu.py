"""The gated linear unit on separate halves: y = x * sigmoid(gate).

Source: Dauphin, Fan, Auli and Grangier, "Language Modeling with Gated Convolutional Networks", 2016.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "gate": ("B", "T", "H")}
CLOSEST = "swiglu"


def glu(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    y = x * torch.sigmoid(gate)
    return y
