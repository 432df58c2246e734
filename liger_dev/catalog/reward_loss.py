"""Preference loss of a reward model: loss = mean(-log(sigmoid(chosen - rejected - margin))).

Source: Bradley and Terry, "Rank Analysis of Incomplete Block Designs", 1952; Touvron et al., "Llama 2: Open Foundation
and Fine-Tuned Chat Models", 2023, for the margin.
"""

import torch
import torch.nn.functional as F

SHAPES = {"chosen": ("N",), "rejected": ("N",)}
CLOSEST = "dpo"


def reward_loss(chosen: torch.Tensor, rejected: torch.Tensor, margin: float = 0.0) -> torch.Tensor:
    difference = chosen.float() - rejected.float() - margin
    loss = -F.logsigmoid(difference).mean()
    return loss
