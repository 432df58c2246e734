"""SwiGLU with multipliers: y = silu(gate_multiplier * gate) * up * down_multiplier.

Source: Zuo et al., "Falcon-H1: A Family of Hybrid-Head Language Models Redefining Efficiency and Performance", 2025.
"""

import torch
import torch.nn.functional as F

SHAPES = {"gate": ("B", "T", "H"), "up": ("B", "T", "H")}
CLOSEST = "swiglu"


def swiglu_scaled(
    gate: torch.Tensor, up: torch.Tensor, gate_multiplier: float = 0.9, down_multiplier: float = 0.5
) -> torch.Tensor:
    activated = F.silu(gate_multiplier * gate)
    y = activated * up * down_multiplier
    return y
