"""Gate, then RMS normalisation, as in Mamba 2: y = weight * gated / rms(gated), where gated = x * silu(gate).

Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
Space Duality", 2024.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H"), "gate": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "rms_norm"


def gated_rms_norm(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    gated = x.float() * F.silu(gate.float())
    rstd = torch.rsqrt(gated.square().mean(-1, keepdim=True) + eps)
    gated_hat = (gated * rstd).to(x.dtype)
    y = weight * gated_hat
    return y
