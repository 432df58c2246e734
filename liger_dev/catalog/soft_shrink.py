"""Soft shrinkage: y = sign(x) * max(|x| - threshold, 0).

Source: Donoho, "De-noising by Soft-Thresholding", 1995.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def soft_shrink(x: torch.Tensor, threshold: float = 0.5) -> torch.Tensor:
    y = torch.sign(x) * (x.abs() - threshold).clamp(min=0.0)
    return y
