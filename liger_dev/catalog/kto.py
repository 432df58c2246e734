"""Kahneman-Tversky optimisation: loss = mean(1 - sigmoid(beta * sign * (ratio - kl))).

ratio = log_prob of the policy - log_prob of the reference, sign = 1 where desirable, -1 elsewhere

Source: Ethayarajh, Xu, Muennighoff, Jurafsky and Kiela, "KTO: Model Alignment as Prospect Theoretic Optimization",
2024.
"""

import torch

SHAPES = {"log_prob": ("N",), "reference_log_prob": ("N",), "desirable": ("N",), "kl": (1,)}
DTYPES = {"desirable": "bool"}
CLOSEST = "dpo"


def kto(
    log_prob: torch.Tensor,
    reference_log_prob: torch.Tensor,
    desirable: torch.Tensor,
    kl: torch.Tensor,
    beta: float = 0.1,
) -> torch.Tensor:
    gain = log_prob.float() - reference_log_prob.float() - kl.detach().float()
    value = torch.sigmoid(beta * torch.where(desirable, gain, -gain))
    loss = (1.0 - value).mean()
    return loss
