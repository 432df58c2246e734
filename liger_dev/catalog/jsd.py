"""Generalised Jensen-Shannon divergence of log-probabilities: loss = mean of beta * KL(p, m) + (1 - beta) * KL(q, m).

q = exp(log_q), p = exp(log_p), m = beta * p + (1 - beta) * q, with 0 < beta < 1

Source: Lin, "Divergence Measures Based on the Shannon Entropy", 1991; Agarwal et al., "On-Policy Distillation of
Language Models: Learning from Self-Generated Mistakes", 2023.
"""

import torch

SHAPES = {"log_q": ("N", "V"), "log_p": ("N", "V")}
CLOSEST = "kl_div"


def jsd(log_q: torch.Tensor, log_p: torch.Tensor, beta: float = 0.5) -> torch.Tensor:
    # Below -80 a probability is 0 to float32; with -inf, 0 * log(0) would be no number.
    log_q_bounded = log_q.float().clamp(min=-80.0)
    log_p_bounded = log_p.float().clamp(min=-80.0)
    q, p = log_q_bounded.exp(), log_p_bounded.exp()
    log_mixture = torch.log(beta * p + (1.0 - beta) * q)
    teacher_term = beta * p * (log_p_bounded - log_mixture)
    student_term = (1.0 - beta) * q * (log_q_bounded - log_mixture)
    loss = (teacher_term + student_term).sum(-1).mean()
    return loss
