"""Jensen-Shannon divergence of kept rows: loss = sum over kept rows of jsd / number of kept rows.

jsd = sum(beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)), m = beta * p + (1 - beta) * q

Source: Agarwal et al., "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes", 2023.
"""

import torch

SHAPES = {"log_q": ("N", "V"), "log_p": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "jsd"


def jsd_masked(
    log_q: torch.Tensor, log_p: torch.Tensor, target: torch.Tensor, beta: float = 0.5, ignore_index: int = -100
) -> torch.Tensor:
    log_q_float, log_p_float = log_q.float(), log_p.float()
    q, p = log_q_float.exp(), log_p_float.exp()
    log_mixture = torch.log(beta * p + (1.0 - beta) * q)
    teacher_term = beta * p * (log_p_float - log_mixture)
    student_term = (1.0 - beta) * q * (log_q_float - log_mixture)
    kept = target != ignore_index
    row_loss = torch.where(kept, (teacher_term + student_term).sum(-1), 0.0)
    loss = row_loss.sum() / kept.sum().clamp(min=1)
    return loss
