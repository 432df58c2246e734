"""Reverse Kullback-Leibler divergence of two rows of logits: loss = mean over rows of sum(p * (log(p) - log(q))).

p = softmax(student), q = softmax(teacher)

Source: Gu, Dong, Wei and Huang, "MiniLLM: Knowledge Distillation of Large Language Models", 2023.
"""

import torch

SHAPES = {"student": ("N", "V"), "teacher": ("N", "V")}
CLOSEST = "kl_div"


def reverse_kl_div(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    student_log_probs = torch.log_softmax(student.float(), dim=-1)
    teacher_log_probs = torch.log_softmax(teacher.float(), dim=-1)
    divergence = (student_log_probs.exp() * (student_log_probs - teacher_log_probs)).sum(-1)
    loss = divergence.mean()
    return loss
