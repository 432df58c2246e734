"""Softmax at a temperature: y = softmax(x / temperature).

Source: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}
CLOSEST = "softmax"


def temperature_softmax(x: torch.Tensor, temperature: float = 2.0) -> torch.Tensor:
    scaled = x.float() / temperature
    y = torch.softmax(scaled, dim=-1)
    return y.to(x.dtype)
