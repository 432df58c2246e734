"""Contrastive preference optimisation: loss = mean(-log(sigmoid(beta * (chosen - rejected))) - alpha * chosen_mean).

chosen and rejected are summed log-probabilities, chosen_mean is the mean one of the chosen answer

Source: Xu et al., "Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine
Translation", 2024.
"""

import torch
import torch.nn.functional as F

SHAPES = {"chosen": ("N",), "rejected": ("N",), "chosen_mean": ("N",)}
CLOSEST = "dpo"


def cpo(
    chosen: torch.Tensor, rejected: torch.Tensor, chosen_mean: torch.Tensor, beta: float = 0.1, alpha: float = 1.0
) -> torch.Tensor:
    preference = F.logsigmoid(beta * (chosen.float() - rejected.float()))
    loss = -(preference + alpha * chosen_mean.float()).mean()
    return loss
