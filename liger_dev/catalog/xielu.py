"""xIELU, an activation from integrated ELUs with two learned slopes.

y = alpha_p * x^2 + beta * x                          where x > 0
y = alpha_n * (exp(min(x, eps)) - 1 - x) + beta * x   elsewhere
alpha_p = softplus(raw_p), alpha_n = beta + softplus(raw_n)

Source: Huang and Schlag, "Deriving Activation Functions Using Integration", 2024.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H"), "raw_p": (1,), "raw_n": (1,)}
PARAMETERS = {"raw_p": "full(0.2)", "raw_n": "full(-1.2)"}


def xielu(
    x: torch.Tensor, raw_p: torch.Tensor, raw_n: torch.Tensor, beta: float = 0.5, eps: float = -1e-6
) -> torch.Tensor:
    alpha_p = F.softplus(raw_p)
    alpha_n = beta + F.softplus(raw_n)
    positive = alpha_p * x * x + beta * x
    negative = alpha_n * (torch.expm1(x.clamp(max=eps)) - x) + beta * x
    y = torch.where(x > 0, positive, negative)
    return y
