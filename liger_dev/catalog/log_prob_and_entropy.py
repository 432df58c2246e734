"""Log-probability of each token's label and the entropy of its distribution, from one pass over the logits.

log_prob = log_softmax(logits)[target], entropy = -sum(softmax(logits) * log_softmax(logits))

Source: Schulman et al., "Proximal Policy Optimization Algorithms", 2017.
"""

import torch

SHAPES = {"logits": ("B", "T", "V"), "target": ("B", "T")}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "selected_log_prob"


def log_prob_and_entropy(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    log_prob = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return log_prob, entropy
