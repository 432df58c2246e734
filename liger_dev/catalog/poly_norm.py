"""A polynomial of normalised powers: y = w0 * norm(x^3) + w1 * norm(x^2) + w2 * norm(x) + bias, norm(u) = u / rms(u).

Source: Zhuo, Wang, Zeng, Li, Zhou and Ma, "Polynomial Composition Activations: Unleashing the Dynamics of Large
Language Models", 2024.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": (3,), "bias": (1,)}
PARAMETERS = {"weight": "full(0.333333)", "bias": "zeros"}
CLOSEST = "rms_norm"


def poly_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    squared = x_float * x_float
    cubed = squared * x_float
    cubed_hat = cubed * torch.rsqrt(cubed.square().mean(-1, keepdim=True) + eps)
    squared_hat = squared * torch.rsqrt(squared.square().mean(-1, keepdim=True) + eps)
    x_hat = x_float * torch.rsqrt(squared.mean(-1, keepdim=True) + eps)
    y = weight[0] * cubed_hat + weight[1] * squared_hat + weight[2] * x_hat + bias
    return y.to(x.dtype)
