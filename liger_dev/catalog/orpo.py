"""Odds ratio preference optimisation: loss = -mean(chosen) - beta * mean(log(sigmoid(odds))).

odds = chosen - rejected - (log(1 - exp(chosen)) - log(1 - exp(rejected))), both of them mean log-probabilities

Source: Hong, Lee and Thorne, "ORPO: Monolithic Preference Optimization without Reference Model", 2024.
"""

import torch
import torch.nn.functional as F

SHAPES = {"chosen": ("N",), "rejected": ("N",)}
CLOSEST = "dpo"


def orpo(chosen: torch.Tensor, rejected: torch.Tensor, beta: float = 0.1, eps: float = 1e-6) -> torch.Tensor:
    # A probability of 1 has infinite odds.
    chosen_log, rejected_log = chosen.float().clamp(max=-eps), rejected.float().clamp(max=-eps)
    chosen_odds = chosen_log - torch.log(-torch.expm1(chosen_log))
    rejected_odds = rejected_log - torch.log(-torch.expm1(rejected_log))
    preference = F.logsigmoid(chosen_odds - rejected_odds)
    loss = -(chosen.float() + beta * preference).mean()
    return loss
