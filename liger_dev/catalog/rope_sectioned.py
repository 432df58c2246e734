"""Rotary position embedding whose sections of columns follow positions of their own: y = x * c + rotated(x) * s.

c and s are rows of cos and sin for time, height and width, in 16, 24 and 24 columns of each half in turn.
rotated swaps the halves of x and negates the first. The tables cos and sin get no gradient.

Source: Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution", 2024.
"""

import torch

SHAPES = {"x": ("B", "N", "T", 128), "cos": (3, "B", "T", 128), "sin": (3, "B", "T", 128)}
CLOSEST = "rope"


def sectioned(table: torch.Tensor) -> torch.Tensor:
    sections = table.split([16, 24, 24, 16, 24, 24], dim=-1)
    return torch.cat([section[i % 3] for i, section in enumerate(sections)], dim=-1).unsqueeze(1)


def rope_sectioned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((-second, first), dim=-1)
    y = x * sectioned(cos.detach()) + rotated * sectioned(sin.detach())
    return y
