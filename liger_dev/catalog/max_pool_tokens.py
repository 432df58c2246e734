"""The largest value of each column over the tokens: y = max over tokens of x.

Source: Collobert and Weston, "A Unified Architecture for Natural Language Processing", 2008.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def max_pool_tokens(x: torch.Tensor) -> torch.Tensor:
    y = x.amax(1)
    return y
