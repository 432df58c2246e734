"""Softmax of noisy logits at a temperature: y = softmax((x + noise) / temperature), noise drawn from Gumbel's law.

Source: Jang, Gu and Poole, "Categorical Reparameterization with Gumbel-Softmax", 2016.
"""

import torch

SHAPES = {"x": ("B", "T", "V"), "noise": ("B", "T", "V")}
CLOSEST = "softmax"


def gumbel_softmax(x: torch.Tensor, noise: torch.Tensor, temperature: float = 0.7) -> torch.Tensor:
    perturbed = (x.float() + noise.float()) / temperature
    y = torch.softmax(perturbed, dim=-1)
    return y.to(x.dtype)
