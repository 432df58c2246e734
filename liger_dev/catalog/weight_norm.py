"""Weight normalisation, a length and a direction a row: weight = length * direction / norm(direction).

Source: Salimans and Kingma, "Weight Normalization: A Simple Reparameterization to Accelerate Training of Deep Neural
Networks", 2016.
"""

import torch

SHAPES = {"direction": ("K", "H"), "length": ("K",)}
PARAMETERS = {"direction": "normal", "length": "ones"}
CLOSEST = "l2_norm"


def weight_norm(direction: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    direction_float = direction.float()
    norm = direction_float.norm(dim=-1, keepdim=True)
    weight = length.float()[:, None] * direction_float / norm
    return weight.to(direction.dtype)
