"""SwiGLU of routed tokens, scaled by each token's routing weight: y = silu(gate) * up * routing_weight.

Source: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017, with
the gate of Shazeer, "GLU Variants Improve Transformer", 2020.
"""

import torch
import torch.nn.functional as F

SHAPES = {"gate": ("N", "H"), "up": ("N", "H"), "routing_weight": ("N",)}
CLOSEST = "swiglu"


def swiglu_weighted(gate: torch.Tensor, up: torch.Tensor, routing_weight: torch.Tensor) -> torch.Tensor:
    activated = F.silu(gate)
    y = activated * up * routing_weight[:, None]
    return y
