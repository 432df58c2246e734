"""SwiGLU with clamps, as in gpt-oss: y = (up + 1) * gate * sigmoid(alpha * gate), gate and up kept below a limit.

Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025.
"""

import torch

SHAPES = {"gate": ("B", "T", "H"), "up": ("B", "T", "H")}
CLOSEST = "swiglu"


def swiglu_clamped(gate: torch.Tensor, up: torch.Tensor, alpha: float = 1.702, limit: float = 7.0) -> torch.Tensor:
    gate_limited = gate.clamp(max=limit)
    up_limited = up.clamp(min=-limit, max=limit)
    activated = gate_limited * torch.sigmoid(alpha * gate_limited)
    y = (up_limited + 1.0) * activated
    return y
