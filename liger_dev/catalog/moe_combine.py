"""Weighted sum of a token's experts: y = sum over its experts of routing_weight * expert_output.

Source: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017.
"""

import torch

SHAPES = {"expert_output": ("N", "K", "H"), "routing_weight": ("N", "K")}


def moe_combine(expert_output: torch.Tensor, routing_weight: torch.Tensor) -> torch.Tensor:
    weighted = expert_output.float() * routing_weight.float()[..., None]
    y = weighted.sum(1)
    return y.to(expert_output.dtype)
