"""A smooth absolute error: loss = mean(sqrt((prediction - target)^2 + eps^2)).

Source: Charbonnier, Blanc-Feraud, Aubert and Barlaud, "Two Deterministic Half-Quadratic Regularization Algorithms for
Computed Imaging", 1994.
"""

import torch

SHAPES = {"prediction": ("N", "H"), "target": ("N", "H")}
CLOSEST = "l1_loss"


def charbonnier_loss(prediction: torch.Tensor, target: torch.Tensor, eps: float = 1e-3) -> torch.Tensor:
    error = prediction.float() - target.float()
    loss = torch.sqrt(error.square() + eps * eps).mean()
    return loss
