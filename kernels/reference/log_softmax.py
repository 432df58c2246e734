"""Logarithm of softmax over the last dimension: y = x - max(x) - log(sum(exp(x - max(x)))).

Source: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990; Blanchard, Higham
and Higham, "Accurately Computing the Log-Sum-Exp and Softmax Functions", 2021.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.log_softmax(x, dim=-1)
    return y
