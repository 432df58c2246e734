"""The compiler's kernel and an agent's in, the one that stands and why out: the agent's has to be measurably better."""

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass

from liger_dev.bench.csv import Measurement

# Peak memory is the allocator's count and repeats to the byte, but for blocks that it rounds up.
_MEMORY = 1.01

Point = tuple[str, int | float | str]
Measure = Callable[[str], Sequence[Measurement]]
_STANDS = "The compiler's kernel stands"


@dataclass(frozen=True)
class Outcome:
    """`wins` is the agent's kernel; `reason` is a sentence for the reviewer."""

    wins: bool
    reason: str


def contest(compiled: str, written: str, device: str, passes: Callable[[str], bool], measure: Measure) -> Outcome:
    """Which of two op files stands.

    Args:
        device: the GPU's name; without one nothing can be measured.
        passes: whether an op file passes the gate that the compiler's has to pass.
        measure: the benchmark's rows for an op file.
    """
    if not device:
        return Outcome(False, f"{_STANDS}: speed was not measured, since there is no CUDA GPU here.")
    if written == compiled:
        return Outcome(False, f"{_STANDS}: the agent has handed it in as it was.")
    if not passes(written):
        return Outcome(False, f"{_STANDS}: the agent's does not pass the gate.")
    # The compiler's twice, around the other: a clock that drifts meanwhile must not decide.
    before, new, after = measure(compiled), measure(written), measure(compiled)
    first, second = compare(before, new), compare(after, new)
    return first if not first.wins else second


def compare(old: Sequence[Measurement], new: Sequence[Measurement]) -> Outcome:
    """Whether the second of two measurements of the op is better: faster somewhere, slower and larger nowhere.

    Faster means that the slow end of its middle 60 % lies before the fast end of the other's, at the same point.
    """
    speeds, memories = _pairs(old, new, "speed"), _pairs(old, new, "memory")
    if not speeds or not _same_points(old, new):
        return Outcome(False, f"{_STANDS}: speed was not measured at the same points for both.")
    faster = [point for point, (a, b) in speeds.items() if b.y_value_80 < a.y_value_20]
    slower = [point for point, (a, b) in speeds.items() if b.y_value_20 > a.y_value_80]
    larger = [point for point, (a, b) in memories.items() if b.y_value_50 > a.y_value_50 * _MEMORY]
    found = f"faster at {len(faster)} of {len(speeds)} points, slower at {len(slower)}"
    found += f", larger at {len(larger)} of {len(memories)}" if memories else ""
    if not faster or slower or larger:
        return Outcome(False, f"{_STANDS}: the agent's is {found}.")
    mode, x = best = max(faster, key=lambda point: speeds[point][0].y_value_50 / speeds[point][1].y_value_50)
    a, b = speeds[best]
    figures = f"{b.y_value_50:.4g} ms instead of {a.y_value_50:.4g} ms ({mode}, {a.x_name} = {x}, {a.gpu_name})"
    return Outcome(True, f"The agent's kernel takes the compiler's place: {found}; at best {figures}.")


def _pairs(
    old: Sequence[Measurement], new: Sequence[Measurement], metric: str
) -> dict[Point, tuple[Measurement, Measurement]]:
    first, second = _by_point(old, metric), _by_point(new, metric)
    return {point: (row, second[point]) for point, row in first.items() if point in second}


def _same_points(old: Sequence[Measurement], new: Sequence[Measurement]) -> bool:
    return all(_by_point(old, metric).keys() == _by_point(new, metric).keys() for metric in ("speed", "memory"))


def _by_point(rows: Sequence[Measurement], metric: str) -> dict[Point, Measurement]:
    return {
        (row.kernel_operation_mode, row.x_value): row
        for row in rows
        if row.kernel_provider == "liger" and row.metric_name == metric
    }
