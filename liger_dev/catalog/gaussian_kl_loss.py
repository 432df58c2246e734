"""KL divergence of a diagonal normal distribution from the standard one, as in variational autoencoders.

loss = mean over samples of sum(mean^2 + exp(log_variance) - 1 - log_variance) / 2

Source: Kingma and Welling, "Auto-Encoding Variational Bayes", 2013.
"""

import torch

SHAPES = {"mean": ("N", "H"), "log_variance": ("N", "H")}
CLOSEST = "kl_div"


def gaussian_kl_loss(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    mean_float, log_variance_float = mean.float(), log_variance.float()
    divergence = 0.5 * (mean_float.square() + log_variance_float.exp() - 1.0 - log_variance_float).sum(-1)
    loss = divergence.mean()
    return loss
