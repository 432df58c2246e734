"""Squared SiLU: y = (x * sigmoid(x))^2.

Source: So, Mańke, Liu, Dai, Shazeer and Le, "Primer: Searching for Efficient Transformers for Language Modeling", 2021,
with the activation of Elfwing, Uchibe and Doya, 2017.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "relu_squared"


def squared_silu(x: torch.Tensor) -> torch.Tensor:
    activated = F.silu(x)
    y = activated.square()
    return y
