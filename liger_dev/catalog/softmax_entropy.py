"""Entropy of each row's softmax: entropy = logsumexp(x) - sum(softmax(x) * x).

Source: Shannon, "A Mathematical Theory of Communication", 1948; a bonus in policy optimisation.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}
CLOSEST = "log_softmax"


def softmax_entropy(x: torch.Tensor) -> torch.Tensor:
    log_probs = torch.log_softmax(x.float(), dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return entropy.to(x.dtype)
