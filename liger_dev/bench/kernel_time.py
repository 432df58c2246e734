"""A pass that no graph can replay in, the summed durations of its kernels out, as the profiler saw them.

For a pass that waits for the device half-way, as one does that reads a number. Its kernels' own time is the least that
the device takes: what lies between them, which a replay would count, is left out in the pass's favour.
"""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import torch

from liger_dev.bench.passes import Pass
from liger_dev.bench.timing import FLUSH_BYTES
from liger_dev.bench.timing import MIN_SAMPLES
from liger_dev.bench.timing import WARM_UP_ROUNDS

MARK = "measured pass"

Span = tuple[float, float]


def kernel_times(one: Pass) -> list[float]:
    """Milliseconds on the device, twenty samples, each from an idle device with an overwritten L2 cache.

    Raises:
        RuntimeError: the profiler saw no kernel, as where it is not allowed to look.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(WARM_UP_ROUNDS):
        _call(one, flush)
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        for _ in range(MIN_SAMPLES):
            _call(one, flush)
    samples = busy_ms(*_spans(profiler.events() or ()))
    if len(samples) != MIN_SAMPLES or not all(samples):
        raise RuntimeError("the profiler saw no kernels")
    return samples


def _call(one: Pass, flush: torch.Tensor) -> None:
    one.prepare()
    flush.zero_()
    torch.cuda.synchronize()
    # Backward runs in a thread of its own: what belongs to the pass is told by the time, between two idle moments.
    with torch.profiler.record_function(MARK):
        one.call()
        torch.cuda.synchronize()


def _spans(events: Iterable[Any]) -> tuple[list[Span], list[Span]]:
    """The calls as the host saw them and the work as the device did, in microseconds of one clock."""
    calls, work = [], []
    for event in events:
        span = (event.time_range.start, event.time_range.end)
        on_device = event.device_type == torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]
        if event.name == MARK and not on_device:
            calls.append(span)
        elif on_device and event.name != MARK:
            work.append(span)
    return sorted(calls), sorted(work)


def busy_ms(calls: Sequence[Span], work: Sequence[Span]) -> list[float]:
    """Milliseconds of each call in which the device worked: spans that overlap count once."""
    found = []
    for start, end in calls:
        busy, until = 0.0, start
        for begin, finish in work:
            if start <= begin and finish <= end:
                busy += max(finish, until) - max(begin, until)
                until = max(finish, until)
        found.append(busy / 1e3)
    return found
