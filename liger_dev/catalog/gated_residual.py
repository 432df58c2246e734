"""A residual branch with a gate a sample: y = residual + gate * x.

Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", 2022 (AdaLN-Zero).
"""

import torch

SHAPES = {"residual": ("B", "T", "H"), "x": ("B", "T", "H"), "gate": ("B", 1, "H")}


def gated_residual(residual: torch.Tensor, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    y = residual + gate * x
    return y
