"""Dropout whose mask follows from a seed: y = x / (1 - p) where uniform(seed, position) >= p, else 0.

uniform is 24 bits of a hash of the element's position, which a key made of the seed enters half way: the same seed drops the same
elements, and backward needs no mask, since it draws the same numbers again. Seeds are at least 0; positions count modulo 2**32.

Source: Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, "Dropout: A Simple Way to Prevent Neural Networks
from Overfitting", 2014; the hash's constants from Wellons, "Prospecting for Hash Functions", 2018.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "seed": (1,)}
DTYPES = {"seed": "int"}


def seeded_dropout(x: torch.Tensor, seed: torch.Tensor, p: float = 0.1) -> torch.Tensor:
    position = torch.arange(x.numel(), device=x.device).view(x.shape)
    counted = (position ^ (position >> 17)) * 0xED5AD4BB & 0xFFFFFFFF
    key = (seed ^ (seed >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    seeded = (counted ^ (counted >> 11) ^ key) * 0xAC4C1B51 & 0xFFFFFFFF
    mixed = (seeded ^ (seeded >> 15)) * 0x31848BAB & 0xFFFFFFFF
    bits = mixed ^ (mixed >> 14)
    uniform = (bits >> 8).float() / 16777216.0
    y = torch.where(uniform >= p, x / (1.0 - p), 0.0)
    return y
