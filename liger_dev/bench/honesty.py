"""A kernel as it was timed and its reference in, a refusal out where what was timed was not the work.

For a process in which the kernel has run many times: what it remembers, skips once it is warm, or leaves to a stream
that no event sees shows in what it gives then. It shares the process with these checks, so that they convict, but
acquit only together with the static reading of its text.
"""

import time

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import torch

from liger_dev.bench.passes import Provider
from liger_dev.bench.passes import freshen
from liger_dev.errors import KernelFailed

# As many as a sweep's warm-up and samples together.
CALLS = 30
STREAM_CALLS = 5
# An output in bfloat16 is apart from another order of operations by some units in the last place.
AGREEMENT = 0.05
# Waiting for an idle device takes some microseconds.
_IDLE_MS = 0.1
_clock = time.perf_counter


def check_outputs(kernel: Provider, reference: Provider, inputs: Sequence[Any], where: str, calls: int = CALLS) -> None:
    """Calls the kernel on ever new values at the same addresses, and compares what the last call gives.

    Raises:
        KernelFailed: it differs from the reference's by more than a twentieth of the largest value.
    """
    found: list[torch.Tensor] = []
    for _ in range(calls):
        freshen(inputs)
        found = tensors(kernel(*inputs))
    wanted = tensors(reference(*inputs))
    apart = max((distance(one, other) for one, other in zip(found, wanted, strict=True)), default=0.0)
    if not apart <= AGREEMENT:
        raise KernelFailed(
            f"after {calls} calls the kernel's outputs are {apart:.2g} of the largest value away from the reference's",
            where,
            "check that it remembers nothing from call to call: no time of it is to be believed",
        )


def check_streams(kernel: Provider, inputs: Sequence[Any], where: str) -> None:
    """Raises KernelFailed if the kernel's calls leave work on other streams than the current one, which is timed.

    Of several calls the middle one counts: a process that had to wait for its core looks the same once.
    """
    wait = torch.cuda.current_stream().synchronize, torch.cuda.synchronize
    times = [stream_times(lambda: kernel(*inputs), *wait) for _ in range(STREAM_CALLS)]
    seen, unseen = sorted(times, key=lambda one: one[1] - _allowed(one[0]))[STREAM_CALLS // 2]
    if unseen > _allowed(seen):
        raise KernelFailed(
            f"{unseen:.3f} ms of its work ran on after the {seen:.3f} ms of the timed stream",
            where,
            "let it launch on the current stream alone, and wait there for what runs elsewhere",
        )


def _allowed(seen: float) -> float:
    return max(_IDLE_MS, seen / 4)


def stream_times(
    work: Callable[[], Any], wait_for_stream: Callable[[], Any], wait_for_device: Callable[[], Any]
) -> tuple[float, float]:
    """Milliseconds until the current stream has done its part of `work`, and from then until the device is idle."""
    work()
    wait_for_device()
    start = _clock()
    work()
    wait_for_stream()
    middle = _clock()
    wait_for_device()
    return (middle - start) * 1e3, (_clock() - middle) * 1e3


def tensors(returned: Any) -> list[torch.Tensor]:
    """Copies of the tensors among what a provider returned."""
    several = returned if isinstance(returned, tuple | list) else (returned,)
    return [value.detach().clone() for value in several if isinstance(value, torch.Tensor)]


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference, as a share of the largest value, where `other` is finite."""
    finite = torch.isfinite(other.float())
    if not finite.any():
        return 0.0
    wanted = other.float()[finite]
    return float((one.float()[finite] - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))
