"""Bias, dropout by a given mask, residual: y = residual + ((x + bias) / (1 - p) where keep, else 0).

Source: Shoeybi, Patwary, Puri, LeGresley, Casper and Catanzaro, "Megatron-LM: Training Multi-Billion Parameter
Language Models Using Model Parallelism", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "bias": ("H",), "residual": ("B", "T", "H"), "keep": ("B", "T", "H")}
PARAMETERS = {"bias": "zeros"}
DTYPES = {"keep": "bool"}
CLOSEST = "dropout"


def bias_dropout_add(
    x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, keep: torch.Tensor, p: float = 0.1
) -> torch.Tensor:
    shifted = x + bias
    dropped = torch.where(keep, shifted / (1.0 - p), 0.0)
    y = residual + dropped
    return y
