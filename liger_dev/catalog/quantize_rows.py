"""Rows rounded to 8 bits and back, with a straight-through gradient: y = round(x / scale) * scale, dy/dx = 1.

scale = max(|x|) / 127, one a row

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
2017; Bengio, Leonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons", 2013.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}


def quantize_rows(x: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    x_float = x.float()
    scale = x_float.abs().amax(-1, keepdim=True).clamp(min=eps) / 127.0
    levels = torch.round(x_float / scale).clamp(-127.0, 127.0)
    y = x_float + (levels * scale - x_float).detach()
    return y.to(x.dtype)
