"""Attention over the outputs of earlier layers: y = sum over layers of softmax(query . norm(values)) * values.

norm(values) = values / rms(values) * weight

Source: Kimi Team, "Attention Residuals", 2026.
"""

import torch

SHAPES = {"values": ("L", "B", "T", "H"), "query": ("H",), "weight": ("H",)}
PARAMETERS = {"query": "normal", "weight": "ones"}
CLOSEST = "softmax"


def attn_res(values: torch.Tensor, query: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    values_float = values.float()
    rstd = torch.rsqrt(values_float.square().mean(-1, keepdim=True) + eps)
    keys = values_float * rstd * weight.float()
    scores = (keys * query.float()).sum(-1, keepdim=True)
    shares = torch.softmax(scores, dim=0)
    y = (shares * values_float).sum(0)
    return y.to(values.dtype)
