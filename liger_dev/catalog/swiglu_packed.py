"""SwiGLU of one tensor that holds the gate in its first half: y = silu(gate) * up, where gate, up = halves of x.

Source: Shazeer, "GLU Variants Improve Transformer", 2020; packed as in Phi-3.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "swiglu"


def swiglu_packed(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    y = F.silu(gate) * up
    return y
