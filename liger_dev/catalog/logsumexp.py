"""Logarithm of a row's sum of exponentials: y = max(x) + log(sum(exp(x - max(x)))).

Source: Blanchard, Higham and Higham, "Accurately Computing the Log-Sum-Exp and Softmax Functions", 2021.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}
CLOSEST = "log_softmax"


def logsumexp(x: torch.Tensor) -> torch.Tensor:
    y = torch.logsumexp(x.float(), dim=-1)
    return y.to(x.dtype)
