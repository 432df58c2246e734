"""A learned mix with the token before: y = x + mix * (previous(x) - x), where previous is 0 for the first token.

Source: Peng et al., "RWKV: Reinventing RNNs for the Transformer Era", 2023.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H"), "mix": ("H",)}
PARAMETERS = {"mix": "full(0.5)"}


def token_shift(x: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    previous = F.pad(x[:, :-1], (0, 0, 1, 0))
    y = x + mix * (previous - x)
    return y
