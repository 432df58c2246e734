"""KL divergence from a teacher's softened distribution: loss = t^2 * mean over rows of sum(q * (log(q) - log(p))).

p = softmax(student / t), q = softmax(teacher / t) without gradient

Source: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015.
"""

import torch

SHAPES = {"student": ("N", "V"), "teacher": ("N", "V")}
CLOSEST = "kl_div"


def distillation_loss(student: torch.Tensor, teacher: torch.Tensor, temperature: float = 2.0) -> torch.Tensor:
    student_log_probs = torch.log_softmax(student.float() / temperature, dim=-1)
    teacher_log_probs = torch.log_softmax(teacher.detach().float() / temperature, dim=-1)
    divergence = (teacher_log_probs.exp() * (teacher_log_probs - student_log_probs)).sum(-1)
    loss = temperature * temperature * divergence.mean()
    return loss
