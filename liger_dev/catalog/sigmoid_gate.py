"""The output gate of an attention layer, one value a head: y = x * sigmoid(gate).

Source: Qiu et al., "Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free", 2025.
"""

import torch

SHAPES = {"x": ("B", "T", "N", "D"), "gate": ("B", "T", "N")}
CLOSEST = "swiglu"


def sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    y = x * torch.sigmoid(gate)[..., None]
    return y
