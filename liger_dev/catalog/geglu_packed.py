"""GEGLU of one tensor that holds the gate in its second half: y = x1 * gelu(gate), where x1, gate = halves of x.

Source: Shazeer, "GLU Variants Improve Transformer", 2020; packed as in the feed-forward layers of diffusion models.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "geglu_erf"


def geglu_packed(x: torch.Tensor) -> torch.Tensor:
    value, gate = x.chunk(2, dim=-1)
    y = value * F.gelu(gate)
    return y
