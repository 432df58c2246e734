"""Sparsemax, the nearest distribution to a row: y = max(x - threshold, 0), with threshold so that y sums to 1.

threshold = (sum of the k largest - 1) / k, where k counts the sorted values with 1 + k * value > sum of the first k

Source: Martins and Astudillo, "From Softmax to Sparsemax: A Sparse Model of Attention and Multi-Label
Classification", 2016.
"""

import torch

SHAPES = {"x": ("B", "T", "V")}
CLOSEST = "softmax"


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    centered = x.float() - x.float().amax(-1, keepdim=True).detach()
    ordered = torch.sort(centered, dim=-1, descending=True).values
    cumulative = ordered.cumsum(-1)
    rank = torch.arange(1, x.shape[-1] + 1, device=x.device)
    supported = 1.0 + rank * ordered > cumulative
    support_size = supported.sum(-1, keepdim=True)
    support_sum = torch.where(supported, ordered, 0.0).sum(-1, keepdim=True)
    threshold = (support_sum - 1.0) / support_size
    y = (centered - threshold).clamp(min=0.0)
    return y.to(x.dtype)
