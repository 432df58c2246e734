"""Softmax of attention scores beside a learned sink a head: y = exp(x) / (sum(exp(x)) + exp(sink)).

Source: Xiao, Tian, Chen, Han and Lewis, "Efficient Streaming Language Models with Attention Sinks", 2023; OpenAI,
"gpt-oss-120b & gpt-oss-20b Model Card", 2025.
"""

import torch

SHAPES = {"x": ("B", "N", "T", "S"), "sink": ("N",)}
PARAMETERS = {"sink": "zeros"}
CLOSEST = "softmax"


def sink_softmax(x: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    x_float = x.float()
    sink_score = sink.float()[:, None, None]
    highest = torch.maximum(x_float.amax(-1, keepdim=True), sink_score)
    numerator = torch.exp(x_float - highest)
    denominator = numerator.sum(-1, keepdim=True) + torch.exp(sink_score - highest)
    y = numerator / denominator
    return y.to(x.dtype)
