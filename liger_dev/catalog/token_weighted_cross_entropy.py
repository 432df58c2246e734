"""Cross entropy with a weight a token: loss = sum(token_weight * nll) / number of tokens.

Source: Lin et al., "Rho-1: Not All Tokens Are What You Need", 2024.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",), "token_weight": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def token_weighted_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, token_weight: torch.Tensor
) -> torch.Tensor:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    nll = -log_probs.gather(-1, target[:, None]).squeeze(-1)
    loss = (token_weight.float() * nll).mean()
    return loss
