"""Mean of the tokens that a mask keeps: y = sum over tokens of mask * x / number of kept tokens.

Source: Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H"), "mask": ("B", "T")}
DTYPES = {"mask": "bool"}


def masked_mean_pool(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    kept = torch.where(mask.unsqueeze(-1), x.float(), 0.0)
    count = mask.sum(1, keepdim=True).clamp(min=1)
    y = kept.sum(1) / count
    return y.to(x.dtype)
