"""Log-probability of each token's own label at a temperature: y = log_softmax(logits / temperature)[target].

Source: what policy optimisation needs of a language model, as in Schulman et al., "Proximal Policy Optimization
Algorithms", 2017.
"""

import torch

SHAPES = {"logits": ("B", "T", "V"), "target": ("B", "T")}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "token_cross_entropy"


def selected_log_prob(logits: torch.Tensor, target: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    scaled = logits.float() / temperature
    selected = scaled.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    log_prob = selected - torch.logsumexp(scaled, dim=-1)
    return log_prob
