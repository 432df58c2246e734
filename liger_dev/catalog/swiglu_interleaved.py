"""SwiGLU of one tensor whose even columns are the gate: y = silu(x[0::2]) * x[1::2].

Source: Shazeer, "GLU Variants Improve Transformer", 2020; interleaved as in gpt-oss.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "swiglu"


def swiglu_interleaved(x: torch.Tensor) -> torch.Tensor:
    gate, up = x[..., ::2], x[..., 1::2]
    y = F.silu(gate) * up
    return y
