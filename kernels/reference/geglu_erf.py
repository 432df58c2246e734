"""GEGLU with the exact GELU: y = gelu(gate) * up, where gelu(gate) = gate / 2 * (1 + erf(gate / sqrt(2))).

Source: Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
"""

import torch
import torch.nn.functional as F

SHAPES = {"gate": ("B", "T", "H"), "up": ("B", "T", "H")}


def geglu_erf(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    activated = F.gelu(gate)
    y = activated * up
    return y
