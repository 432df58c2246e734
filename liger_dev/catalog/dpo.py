"""Direct preference optimisation: loss = mean(-log(sigmoid(beta * (chosen_ratio - rejected_ratio)))).

chosen_ratio = log_prob of the policy - log_prob of the reference, likewise for the rejected answer

Source: Rafailov, Sharma, Mitchell, Ermon, Manning and Finn, "Direct Preference Optimization: Your Language Model is
Secretly a Reward Model", 2023.
"""

import torch
import torch.nn.functional as F

SHAPES = {"chosen": ("N",), "rejected": ("N",), "reference_chosen": ("N",), "reference_rejected": ("N",)}


def dpo(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
    beta: float = 0.1,
) -> torch.Tensor:
    chosen_ratio = chosen.float() - reference_chosen.float()
    rejected_ratio = rejected.float() - reference_rejected.float()
    loss = -F.logsigmoid(beta * (chosen_ratio - rejected_ratio)).mean()
    return loss
