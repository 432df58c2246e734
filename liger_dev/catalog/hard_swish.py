"""Hard swish: y = x * clamp(x + 3, 0, 6) / 6.

Source: Howard et al., "Searching for MobileNetV3", 2019.
"""

import torch

SHAPES = {"x": ("B", "T", "H")}
CLOSEST = "silu"


def hard_swish(x: torch.Tensor) -> torch.Tensor:
    y = x * (x + 3.0).clamp(0.0, 6.0) / 6.0
    return y
