"""Running sum from the end of the last dimension: y[i] = x[i] + ... + x[n - 1].

Source: torch.cumsum on a flipped tensor.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "cumulative_sum"


def reverse_cumulative_sum(x: torch.Tensor) -> torch.Tensor:
    y = x.float().flip(-1).cumsum(-1).flip(-1)
    return y.to(x.dtype)
