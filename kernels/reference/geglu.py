"""GEGLU with the tanh form of GELU: y = gelu_tanh(gate) * up.

gelu_tanh(gate) = gate / 2 * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 * gate^3)))

Source: Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
"""

import torch
import torch.nn.functional as F

SHAPES = {"gate": ("B", "T", "H"), "up": ("B", "T", "H")}


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    activated = F.gelu(gate, approximate="tanh")
    y = activated * up
    return y
