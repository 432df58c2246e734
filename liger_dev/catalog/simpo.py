"""Simple preference optimisation of mean log-probabilities: loss = mean(-log(sigmoid(beta * (c - r) - gamma))).

Source: Meng, Xia and Chen, "SimPO: Simple Preference Optimization with a Reference-Free Reward", 2024.
"""

import torch
import torch.nn.functional as F

SHAPES = {"chosen": ("N",), "rejected": ("N",)}
CLOSEST = "dpo"


def simpo(chosen: torch.Tensor, rejected: torch.Tensor, beta: float = 2.0, gamma: float = 1.0) -> torch.Tensor:
    margin = beta * (chosen.float() - rejected.float()) - gamma
    loss = -F.logsigmoid(margin).mean()
    return loss
