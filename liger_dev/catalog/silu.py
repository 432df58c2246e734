"""SiLU: y = x * sigmoid(x).

Source: Elfwing, Uchibe and Doya, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in
Reinforcement Learning", 2017.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def silu(x: torch.Tensor) -> torch.Tensor:
    y = x * torch.sigmoid(x)
    return y
