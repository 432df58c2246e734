"""Cross entropy with a weight a class: loss = sum(class_weight[target] * nll) / sum(class_weight[target]).

Source: torch.nn.functional.cross_entropy with weight.
"""

import torch

SHAPES = {"logits": ("N", "V"), "target": ("N",), "class_weight": ("V",)}
DTYPES = {"target": "int"}
RANGES = {"target": "V"}
CLOSEST = "cross_entropy"


def class_weighted_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, class_weight: torch.Tensor
) -> torch.Tensor:
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    nll = -log_probs.gather(-1, target[:, None]).squeeze(-1)
    row_weight = class_weight.float()[target]
    loss = (row_weight * nll).sum() / row_weight.sum()
    return loss
