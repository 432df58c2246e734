"""Samples of two providers in, their median ratio with a bootstrap interval and a verdict in words out."""

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

QUANTILES = (0.5, 0.2, 0.8)
# A difference that no user would notice. Call times are those of a host with other things to do: the kernel against
# itself, 300 samples each, comes out within 1 to 4 %.
MARGIN = 0.02
MARGINS = {"speed": 0.05}
RESAMPLES = 1000


@dataclass(frozen=True)
class Comparison:
    """How a candidate's time compares with a baseline's.

    `ratio` is candidate / baseline (below 1: the candidate takes less), `low` and `high` its 95 % interval.
    `verdict` is `faster`, `slower`, `same` (the whole interval within the margin) or `inconclusive`.
    """

    candidate: str
    baseline: str
    ratio: float
    low: float
    high: float
    verdict: str


def quantile(samples: Sequence[float], q: float) -> float:
    """The q-quantile of at least one sample, linear between neighbours."""
    assert samples and 0 <= q <= 1, "a quantile needs samples and a share between 0 and 1"
    ordered = sorted(samples)
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def quantiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """The median, the 20 % and the 80 % quantile: the order of the CSV's columns."""
    middle, low, high = (quantile(samples, q) for q in QUANTILES)
    return middle, low, high


def ratio_interval(candidate: Sequence[float], baseline: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of median(candidate) / median(baseline), the same for the same seed."""
    # It takes 0.2 s to import, which only those pay who compare.
    import numpy as np

    rng = np.random.default_rng(seed)
    over, under = (
        np.median(rng.choice(np.asarray(samples), (RESAMPLES, len(samples))), axis=1)
        for samples in (candidate, baseline)
    )
    low, high = np.quantile(over / under, (0.025, 0.975))
    return float(low), float(high)


def verdict(low: float, high: float, margin: float = MARGIN) -> str:
    """A word for the interval of a time ratio: a difference within `margin` is none that a user would notice."""
    if high < 1 - margin:
        return "faster"
    if low > 1 + margin:
        return "slower"
    if low >= 1 - margin and high <= 1 + margin:
        return "same"
    return "inconclusive"


def compare_with_fastest(
    candidate: str, samples: Mapping[str, Sequence[float]], metric: str = "device_time"
) -> Comparison | None:
    """The candidate against the fastest of the other providers, whichever that is; None if there is no other.

    `metric` is what the samples are of: the times of calls are told apart less finely than those on the device.
    """
    others = [name for name in samples if name != candidate]
    if candidate not in samples or not others:
        return None
    baseline = min(others, key=lambda name: median(samples[name]))
    low, high = ratio_interval(samples[candidate], samples[baseline])
    ratio = median(samples[candidate]) / median(samples[baseline])
    return Comparison(candidate, baseline, ratio, low, high, verdict(low, high, MARGINS.get(metric, MARGIN)))
