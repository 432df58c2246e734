"""Layer normalisation that a condition modulates (AdaLN): y = x_hat * (1 + scale) + shift, one scale a sample.

x_hat = (x - mean(x)) / sqrt(var(x) + eps)

Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", 2022.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "scale": ("B", 1, "H"), "shift": ("B", 1, "H")}
CLOSEST = "layer_norm"


def modulated_layer_norm(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    centered = x_float - x_float.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
    x_hat = centered * rstd
    y = x_hat * (1.0 + scale.float()) + shift.float()
    return y.to(x.dtype)
