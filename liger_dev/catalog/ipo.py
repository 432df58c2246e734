"""Identity preference optimisation: loss = mean((chosen_ratio - rejected_ratio - 1 / (2 * beta))^2).

Source: Azar et al., "A General Theoretical Paradigm to Understand Learning from Human Preferences", 2023.
"""

import torch

SHAPES = {"chosen": ("N",), "rejected": ("N",), "reference_chosen": ("N",), "reference_rejected": ("N",)}
CLOSEST = "dpo"


def ipo(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
    beta: float = 0.1,
) -> torch.Tensor:
    chosen_ratio = chosen.float() - reference_chosen.float()
    rejected_ratio = rejected.float() - reference_rejected.float()
    loss = (chosen_ratio - rejected_ratio - 1.0 / (2.0 * beta)).square().mean()
    return loss
