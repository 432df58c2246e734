"""ReGLU: y = relu(gate) * up.

Source: Shazeer, "GLU Variants Improve Transformer", 2020.
"""

import torch
import torch.nn.functional as F

SHAPES = {"gate": ("B", "T", "H"), "up": ("B", "T", "H")}
CLOSEST = "swiglu"


def reglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    activated = F.relu(gate)
    y = activated * up
    return y
