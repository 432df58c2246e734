"""RMS normalisation of queries and keys, each head by itself: q_normed = q_weight * q / rms(q), and k so too.

Source: Henry, Dachapally, Pawar and Chen, "Query-Key Normalization for Transformers", 2020; Dehghani et al., "Scaling
Vision Transformers to 22 Billion Parameters", 2023.
"""

import torch

SHAPES = {"q": ("B", "T", "N", "D"), "k": ("B", "T", "K", "D"), "q_weight": ("D",), "k_weight": ("D",)}
PARAMETERS = {"q_weight": "ones", "k_weight": "ones"}
CLOSEST = "rms_norm"


def qk_norm(
    q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    q_float = q.float()
    q_rstd = torch.rsqrt(q_float.square().mean(-1, keepdim=True) + eps)
    q_normed = q_weight * (q_float * q_rstd).to(q.dtype)
    k_float = k.float()
    k_rstd = torch.rsqrt(k_float.square().mean(-1, keepdim=True) + eps)
    k_normed = k_weight * (k_float * k_rstd).to(k.dtype)
    return q_normed, k_normed
