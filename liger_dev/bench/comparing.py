"""All samples in, one record a pass and kind of time out: every provider's samples, and the kernel against the fastest."""

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from liger_dev.bench.csv import DEVICE_TIMES
from liger_dev.bench.samples import Sampled
from liger_dev.bench.statistics import Comparison
from liger_dev.bench.statistics import compare_with_fastest
from liger_dev.bench.statistics import quantile

CANDIDATE = "liger"
TIMES = {"device_time": "device time", "speed": "call time"}


@dataclass(frozen=True)
class Timed:
    """One pass at one x: `samples` in ms by provider, of the calls (`speed`) or of the device (`device_time`).

    `alone` says why a provider's kernels were timed one by one instead of a replay, by provider; `shares` are the
    kernel's of the copy bandwidth, where they are known.
    """

    kernel: str
    mode: str
    metric: str
    x_name: str
    x: str
    config: str
    gpu: str
    samples: Mapping[str, tuple[float, ...]]
    alone: Mapping[str, str]
    shares: tuple[float, ...]

    @cached_property
    def found(self) -> Comparison | None:
        """The kernel against the fastest baseline; None without a baseline, or without the kernel."""
        return compare_with_fastest(CANDIDATE, self.samples, self.metric)

    def median(self, provider: str) -> float | None:
        """Milliseconds; None for a provider that was not measured."""
        return quantile(self.samples[provider], 0.5) if provider in self.samples else None


def timed(samples: Sequence[Sampled]) -> tuple[Timed, ...]:
    """A record a pass and kind of time, in the order of their first samples. A replay counts before kernels alone."""
    groups: dict[tuple[str, ...], dict[str, tuple[float, ...]]] = {}
    alone: dict[tuple[str, ...], dict[str, str]] = {}
    shares: dict[tuple[str, ...], tuple[float, ...]] = {}
    for one in sorted(samples, key=lambda one: one.metric == DEVICE_TIMES[1]):
        kernel, provider, mode, metric, *setting = one.key
        of_device = metric in (*DEVICE_TIMES, "bandwidth_share")
        place = (kernel, mode, DEVICE_TIMES[0] if of_device else metric, *setting)
        if metric == "bandwidth_share":
            if provider == CANDIDATE:
                shares[place] = one.samples
        elif place[2] in TIMES and provider not in groups.setdefault(place, {}):
            groups[place][provider] = one.samples
            if metric == DEVICE_TIMES[1]:
                alone.setdefault(place, {})[provider] = one.under.no_replay.get(provider, "")
    return tuple(
        Timed(kernel, mode, metric, x_name, x, config, gpu, found, alone.get(place, {}), shares.get(place, ()))
        for place, found in groups.items()
        for kernel, mode, metric, x_name, x, config, gpu in (place,)
    )


def alone_in_words(found: Sequence[Timed]) -> list[str]:
    """A sentence a provider whose kernels were timed one by one, with the reason."""
    reasons = {(name, reason) for one in found for name, reason in one.alone.items()}
    return [
        f"{name} can't be replayed as a CUDA graph{f' ({reason})' if reason else ''}: its device time is the sum of its "
        "kernels' durations, which is at most what a replay would take."
        for name, reason in sorted(reasons)
    ]
