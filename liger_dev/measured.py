"""Takes a kernel's rows of the benchmark CSV and their samples, and gives a report's tables, assessment and flags."""

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from liger_dev.bench.comparing import CANDIDATE
from liger_dev.bench.comparing import TIMES
from liger_dev.bench.comparing import Timed
from liger_dev.bench.comparing import alone_in_words
from liger_dev.bench.comparing import timed
from liger_dev.bench.csv import DEVICE_TIMES
from liger_dev.bench.csv import Measurement
from liger_dev.bench.roofline import is_impossible
from liger_dev.bench.samples import Sampled
from liger_dev.bench.statistics import quantile

MODES = ("forward", "backward", "full")
BASELINE = "torch"
# Below this a difference is none that a user would notice; above CATASTROPHIC nobody would merge it.
_MARGIN = 0.02
_CATASTROPHIC = 2.0
# What a launch or two cost more (ms): a short pass that is twice as long for them alone is slower, which the tables
# say, but no catastrophe.
_LAUNCH = {"speed": 0.05, "memory": 0.0}
_HALF = 0.5
# A pass this short (ms) is over before the memory is busy: some microseconds go into its beginning and its end.
_SHORT = 0.02
_TITLES = {"speed": ("Speed (ms)", "Speedup"), "memory": ("Memory (MB)", "Savings")}


@dataclass(frozen=True)
class Pair:
    """Candidate and baseline at one mode and x: medians, in ms or MB."""

    metric: str
    mode: str
    x_name: str
    x_value: int | float | str
    candidate: float
    baseline: float

    @property
    def ratio(self) -> float:
        """Candidate / baseline: below 1 the candidate takes less."""
        return self.candidate / self.baseline if self.baseline else float("inf")


@dataclass(frozen=True)
class Flag:
    """Something that nobody may overlook. `metric` is the name to accept it by: `speed`, `memory` or `impossible`."""

    metric: str
    text: str


def pairs(rows: Sequence[Measurement]) -> tuple[Pair, ...]:
    """What candidate and baseline have in common, in the order of the CSV."""
    table = {(row.metric_name, row.kernel_operation_mode, row.x_value, row.kernel_provider): row for row in rows}
    found = []
    for (metric, mode, x_value, provider), row in table.items():
        baseline = table.get((metric, mode, x_value, BASELINE))
        if metric in _TITLES and provider == CANDIDATE and baseline is not None:
            found.append(Pair(metric, mode, row.x_name, x_value, row.y_value_50, baseline.y_value_50))
    return tuple(found)


def table(metric: str, found: Sequence[Pair]) -> list[str]:
    """The lines of one table, at the largest x that was measured; the CSV has the others."""
    at = [pair for pair in found if pair.metric == metric and pair.mode in MODES]
    title, gain = _TITLES[metric]
    if not at:
        return [f"### {title}", "", "Not measured: the CSV holds no pair of liger and torch."]
    largest = max((pair.x_value for pair in at), key=lambda value: (isinstance(value, int | float), value))
    lines = [
        f"### {title} at {at[0].x_name} = {largest}",
        "",
        f"| Mode | Liger | PyTorch | {gain} |",
        "|---|---:|---:|---:|",
    ]
    for pair in sorted(at, key=lambda pair: MODES.index(pair.mode)):
        if pair.x_value == largest:
            value = f"{1 / pair.ratio:.2f}x" if metric == "speed" else f"{100 * (1 - pair.ratio):.1f} %"
            lines.append(f"| {pair.mode} | {pair.candidate:.4g} | {pair.baseline:.4g} | {value} |")
    return lines


def assessment(rows: Sequence[Measurement]) -> str:
    """Whether the kernel gains speed, memory, both or neither over eager PyTorch, over everything that was measured.

    A full pass is judged, or a forward pass where there is no other; speed by its calls, beside which the device's own
    time is told.
    """
    found = pairs(rows)
    mode = "full" if any(pair.mode == "full" for pair in found) else "forward"
    speed, memory = ([one.ratio for one in found if (one.metric, one.mode) == (metric, mode)] for metric in _TITLES)
    device = [ratio for (passed, _), ratio in _device_ratios(rows).items() if passed == mode]
    gains = [metric for metric, ratios in zip(_TITLES, (speed, memory), strict=True) if ratios and _gains(ratios)]
    word = {0: "neither", 1: "".join(gains), 2: "both"}[len(gains)]
    named = {"call time": speed, "device time": device, "memory": memory}
    told = ", ".join(f"{_span(ratios)} of its {what}" for what, ratios in named.items() if ratios)
    return (
        f"Over eager PyTorch it gains **{word}**: a {mode} pass takes {told or 'what nobody measured'}. "
        f"A gain is one that no size takes back by more than {100 * _MARGIN:.0f} %; speed is that of calls."
    )


def _span(ratios: Sequence[float]) -> str:
    ends = list(dict.fromkeys(f"{end:.2f}" for end in (min(ratios), max(ratios))))
    return " to ".join(ends)


def flags(rows: Sequence[Measurement], found: Sequence[Pair]) -> tuple[Flag, ...]:
    """What is catastrophically worse, at any x and mode, and figures that can't be true. Where the device's own time is
    known, a call that is slow for its launch alone is no catastrophe: the tables show it."""
    device = _device_ratios(rows)
    worse = [
        Flag(
            pair.metric, f"{pair.metric}, {pair.mode}, {pair.x_name} = {pair.x_value}: {pair.ratio:.1f} times PyTorch's"
        )
        for pair in found
        if pair.ratio > _CATASTROPHIC
        and pair.candidate - pair.baseline > _LAUNCH[pair.metric]
        and (pair.metric != "speed" or device.get((pair.mode, pair.x_value), pair.ratio) > _CATASTROPHIC)
    ]
    impossible = [
        Flag(
            "impossible",
            f"{row.kernel_provider}, {row.kernel_operation_mode}, {row.x_name} = {row.x_value}: "
            f"{100 * row.y_value_50:.0f} % of the measured copy bandwidth, which is an error of the measurement",
        )
        for row in rows
        if row.metric_name == "bandwidth_share" and is_impossible(row.y_value_50)
    ]
    return (*worse, *impossible)


def _device_ratios(rows: Sequence[Measurement]) -> dict[tuple[str, int | float | str], float]:
    """Candidate / baseline of the device times, by mode and x."""
    times = {
        (row.kernel_operation_mode, row.x_value, row.kernel_provider): row.y_value_50
        for row in rows
        if row.metric_name in DEVICE_TIMES
    }
    return {
        (mode, x): time / times[mode, x, BASELINE]
        for (mode, x, provider), time in times.items()
        if provider == CANDIDATE and times.get((mode, x, BASELINE))
    }


def points(samples: Sequence[Sampled]) -> tuple[Timed, ...]:
    """Each pass of the kernel that has a baseline to be compared with, for each kind of time and x."""
    return tuple(one for one in timed(samples) if one.found is not None)


def verdict_lines(found: Sequence[Timed]) -> Iterator[str]:
    """A table of verdicts at the largest x, and how often each verdict was given over all of them."""
    if not found:
        return
    largest = max((point.x for point in found), key=_as_number)
    yield f"### Against the fastest baseline at {found[0].x_name} = {largest}"
    yield ""
    yield "| Mode | Time | Fastest baseline | Liger / baseline (95 % interval) | Verdict | Of copy bandwidth |"
    yield "|---|---|---|---:|---|---:|"
    for point in sorted(found, key=lambda point: (MODES.index(point.mode), point.metric)):
        if point.x == largest:
            one = point.found
            assert one is not None, "`points` has none without a baseline"
            share = f"{100 * quantile(point.shares, 0.5):.0f} %" if point.shares else ""
            interval = f"{one.ratio:.3f} ({one.low:.3f} to {one.high:.3f})"
            baseline = f"{one.baseline}, kernels alone" if one.baseline in point.alone else one.baseline
            yield f"| {point.mode} | {TIMES[point.metric]} | {baseline} | {interval} | {one.verdict} | {share} |"
    yield ""
    for metric, title in TIMES.items():
        if counts := _counts(found, metric):
            yield f"Over all sizes and modes, by {title}: {counts}."
    yield from alone_in_words(found)
    yield ""
    yield from _below_half(found)


def against_itself(noise: Sequence[Sampled]) -> Iterator[str]:
    """What the harness makes of the kernel against itself: what it can't tell apart, and what it takes for a difference."""
    found = points(noise)
    if not found:
        return
    told = [f"{_counts(found, metric)} by {title}" for metric, title in TIMES.items() if _counts(found, metric)]
    yield f"The kernel against itself, in as many sizes and modes as were tried: {'; '.join(told)}."
    yield ""


def _counts(found: Sequence[Timed], metric: str) -> str:
    words = [point.found.verdict for point in found if point.metric == metric and point.found]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def against_fastest(found: Sequence[Timed]) -> str:
    """One sentence: a full pass's device time, or call time where there is none, beside the fastest baseline's."""
    full = [point for point in found if point.mode == "full"]
    own = [point for point in full if point.metric == "device_time"] or full
    if not own:
        return ""
    told = ", ".join(
        f"{point.found.verdict} at {point.x_name} = {point.x} ({point.found.ratio:.2f} of {point.found.baseline}'s)"
        for point in own
        if point.found
    )
    return f"Against the fastest baseline of each size, a full pass's {TIMES[own[0].metric]} is {told}."


def _below_half(found: Sequence[Timed]) -> Iterator[str]:
    """Each pass under half of the bandwidth, with what is known of the reason."""
    low = [point for point in found if point.shares and quantile(point.shares, 0.5) < _HALF]
    for point in low:
        milliseconds = point.median(CANDIDATE) or 0.0
        reason = (
            f"the pass takes {1000 * milliseconds:.1f} µs, too short to fill the device"
            if milliseconds < _SHORT
            else "not explained by its length; `--ncu` shows what its warps wait for"
        )
        share = f"{100 * quantile(point.shares, 0.5):.0f} %"
        yield f"- {point.mode} at {point.x_name} = {point.x}: {share} of the copy bandwidth; {reason}."
    if low:
        yield ""


def _as_number(x: str) -> tuple[bool, float, str]:
    return (True, float(x), "") if x.replace(".", "", 1).isdigit() else (False, 0.0, x)


def _gains(ratios: Sequence[float]) -> bool:
    """Whether some size gains and none loses by more than the margin."""
    return min(ratios) < 1 - _MARGIN and max(ratios) < 1 + _MARGIN
