"""A pass in, the megabytes of device memory at its peak out; and which sizes of a sweep fit."""

import gc

from collections.abc import Callable
from collections.abc import Mapping
from typing import TypeVar

import torch

from liger_dev.bench.passes import Pass

X = TypeVar("X")

REPEATS = 3
MEGABYTE = 2**20
# Timing holds all providers at once, each once eager and once as a graph, and allocators round up.
SAFETY = 1.5


def peak_megabytes(build: Callable[[], Pass]) -> list[float]:
    """Peak memory of a pass that `build` makes, its inputs included, once a repetition after a warm-up.

    What was allocated before `build` does not count, so that the figure is the provider's own.
    """
    before = free_unused()
    one = build()
    peaks = []
    for repetition in range(REPEATS + 1):
        one.prepare()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        one.call()
        torch.cuda.synchronize()
        if repetition:
            peaks.append((torch.cuda.max_memory_allocated() - before) / MEGABYTE)
    return peaks


def free_unused() -> int:
    """Hands back what nobody holds, and returns the bytes that are still allocated."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def available_megabytes() -> float:
    """What a sweep may use: the device's free memory."""
    free_unused()
    return float(torch.cuda.mem_get_info()[0]) / MEGABYTE


def split_by_fit(
    growth: Mapping[X, float], peaks: Mapping[str, float], available: float
) -> tuple[tuple[X, ...], tuple[X, ...]]:
    """The x values that fit and those that would not.

    `peaks` are the providers' peak megabytes in a full pass at the smallest x, `growth` how many times as many
    elements there are at each x. Memory is taken to grow with them, an upper bound when part of it does not.
    """
    needed = {x: SAFETY * sum(peaks.values()) * factor for x, factor in growth.items()}
    return (
        tuple(x for x in needed if needed[x] <= available),
        tuple(x for x in needed if needed[x] > available),
    )
