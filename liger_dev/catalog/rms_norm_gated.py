"""RMS normalisation, then a gate, as in gated delta networks: y = weight * x / rms(x) * silu(gate).

Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H"), "gate": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}
CLOSEST = "rms_norm"


def rms_norm_gated(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    rstd = torch.rsqrt(x_float.square().mean(-1, keepdim=True) + eps)
    x_hat = (x_float * rstd).to(x.dtype)
    y = weight * x_hat * F.silu(gate.float())
    return y.to(x.dtype)
