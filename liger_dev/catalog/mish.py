"""Mish: y = x * tanh(softplus(x)), where softplus(x) = log(1 + exp(x)).

Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H")}


def mish(x: torch.Tensor) -> torch.Tensor:
    y = x * torch.tanh(F.softplus(x))
    return y
