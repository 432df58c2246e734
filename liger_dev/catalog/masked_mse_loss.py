"""Mean squared error of the rows that a mask keeps: loss = sum(mask * mean(error^2)) / number of kept rows.

Source: He, Chen, Xie, Li, Dollar and Girshick, "Masked Autoencoders Are Scalable Vision Learners", 2021.
"""

import torch

SHAPES = {"prediction": ("B", "T", "H"), "target": ("B", "T", "H"), "mask": ("B", "T")}
DTYPES = {"mask": "bool"}
CLOSEST = "mse_loss"


def masked_mse_loss(prediction: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    error = prediction.float() - target.float()
    row_loss = error.square().mean(-1)
    loss = torch.where(mask, row_loss, 0.0).sum() / mask.sum().clamp(min=1)
    return loss
