"""Cross entropy with its first polynomial term raised: loss = mean(-log(p) + epsilon * (1 - p)), p of the target.

Source: Leng et al., "PolyLoss: A Polynomial Expansion Perspective of Classification Loss Functions", 2022.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def poly_loss(logits: torch.Tensor, target: torch.Tensor, epsilon: float = 1.0) -> torch.Tensor:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    log_prob = log_probs.gather(-1, target[:, None]).squeeze(-1)
    loss = (epsilon * (1.0 - log_prob.exp()) - log_prob).mean()
    return loss
