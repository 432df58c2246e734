"""Takes a kernel's rows of the benchmark CSV, and gives the two tables of a report, their assessment and the flags."""

from collections.abc import Sequence
from dataclasses import dataclass

from liger_dev.bench.csv import Measurement

MODES = ("forward", "backward", "full")
CANDIDATE = "liger"
BASELINE = "torch"
# Below this a difference is none that a user would notice; above CATASTROPHIC nobody would merge it.
_MARGIN = 0.02
_CATASTROPHIC = 2.0
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


def assessment(found: Sequence[Pair]) -> str:
    """Whether the kernel gains speed, memory, both or neither, over everything that was measured."""
    gains = [metric for metric in _TITLES if _gains([pair for pair in found if pair.metric == metric])]
    match gains:
        case ["speed", "memory"]:
            return "Gains **both**: it is faster than PyTorch and takes less memory."
        case ["speed"]:
            return "Gains **speed**: it is faster than PyTorch, and takes no less memory."
        case ["memory"]:
            return "Gains **memory**: it takes less than PyTorch, and is not faster."
    return "Gains **neither**: it is not faster than PyTorch and takes no less memory."


def flags(rows: Sequence[Measurement], found: Sequence[Pair]) -> tuple[str, ...]:
    """What is catastrophically worse, at any x and mode, and figures that can't be true."""
    worse = [
        f"{pair.metric}, {pair.mode}, {pair.x_name} = {pair.x_value}: {pair.ratio:.1f} times PyTorch's"
        for pair in found
        if pair.ratio > _CATASTROPHIC
    ]
    impossible = [
        f"{row.kernel_provider}, {row.kernel_operation_mode}, {row.x_name} = {row.x_value}: {100 * row.y_value_50:.0f} % "
        "of the measured copy bandwidth, which is an error of the measurement"
        for row in rows
        if row.metric_name == "bandwidth_share" and row.y_value_50 > 1
    ]
    return (*worse, *impossible)


def _gains(found: Sequence[Pair]) -> bool:
    """Whether the full pass gains somewhere and loses nowhere by more than the margin."""
    full = [pair.ratio for pair in found if pair.mode == "full"]
    return bool(full) and min(full) < 1 - _MARGIN and max(full) < 1 + _MARGIN
