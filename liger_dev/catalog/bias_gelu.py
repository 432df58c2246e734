"""Bias, then GELU with tanh: y = gelu_tanh(x + bias).

Source: Shoeybi, Patwary, Puri, LeGresley, Casper and Catanzaro, "Megatron-LM: Training Multi-Billion Parameter
Language Models Using Model Parallelism", 2019.
"""

import torch
import torch.nn.functional as F

SHAPES = {"x": ("B", "T", "H"), "bias": ("H",)}
PARAMETERS = {"bias": "zeros"}
CLOSEST = "gelu"


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    shifted = x + bias
    y = F.gelu(shifted, approximate="tanh")
    return y
