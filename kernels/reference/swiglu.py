"""SwiGLU, the gated activation of Llama: y = silu(gate) * up, where silu(gate) = gate * sigmoid(gate).

Source: Shazeer, "GLU Variants Improve Transformer", 2020.
"""

import torch
import torch.nn.functional as F

SHAPES = {"gate": ("B", "T", "H"), "up": ("B", "T", "H")}


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    activated = F.silu(gate)
    y = activated * up
    return y
