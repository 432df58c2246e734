"""Advantages of a group of answers to one question: advantage = (reward - mean(reward)) / (std(reward) + eps).

Source: Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", 2024.
"""

import torch

SHAPES = {"reward": ("B", "G")}


def group_advantage(reward: torch.Tensor, eps: float = 1e-4) -> torch.Tensor:
    reward_float = reward.float()
    mean = reward_float.mean(-1, keepdim=True)
    std = reward_float.std(-1, keepdim=True)
    advantage = (reward_float - mean) / (std + eps)
    return advantage.to(reward.dtype)
