"""Global response normalisation: y = gamma * x * response + beta + x, response = norm / (mean(norm) + eps).

norm is each channel's Euclidean norm over all positions, its mean is over the channels

Source: Woo, Debnath, Hu, Chen, Liu, Kweon and Xie, "ConvNeXt V2: Co-designing and Scaling ConvNets with Masked
Autoencoders", 2023.
"""

import torch

SHAPES = {"x": ("B", "T", "C"), "gamma": ("C",), "beta": ("C",)}
PARAMETERS = {"gamma": "zeros", "beta": "zeros"}


def global_response_norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    x_float = x.float()
    norm = torch.sqrt(x_float.square().sum(1, keepdim=True) + eps)
    response = norm / (norm.mean(-1, keepdim=True) + eps)
    y = gamma.float() * (x_float * response) + beta.float() + x_float
    return y.to(x.dtype)
