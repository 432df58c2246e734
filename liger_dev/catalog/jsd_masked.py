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
    # Below -80 a probability is 0 to float32; with -inf, 0 * log(0) would be no number.
    log_q_bounded = log_q.float().clamp(min=-80.0)
    log_p_bounded = log_p.float().clamp(min=-80.0)
    q, p = log_q_bounded.exp(), log_p_bounded.exp()
    log_mixture = torch.log(beta * p + (1.0 - beta) * q)
    teacher_term = beta * p * (log_p_bounded - log_mixture)
    student_term = (1.0 - beta) * q * (log_q_bounded - log_mixture)
    kept = target != ignore_index
    row_loss = torch.where(kept, (teacher_term + student_term).sum(-1), 0.0)
    loss = row_loss.sum() / kept.sum().clamp(min=1)
    return loss
