"""A launch's default settings in, the fastest of those that lie near out, with every sample on the way: no torch, no GPU.

Who compiles and who times is handed in, so that the same climb runs on a device and with scripted times.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from liger_dev.bench.statistics import ratio_interval
from liger_dev.bench.statistics import verdict

Settings = dict[str, int]
# Why settings are out, "" for those that stay, in order.
Sift = Callable[[Sequence[Settings]], Sequence[str]]
# Milliseconds of each, taken in turns; None for what does not run, or gives other results than the default.
Timer = Callable[[Sequence[Settings], bool], Sequence[Sequence[float] | None]]

ROUNDS = 4
# What a round must gain to be followed by another.
GAIN = 0.01

# Steps by which settings are near: each knob doubles or halves, stages count by one; pairs keep a thread's elements, or
# a multiprocessor's threads, about the same.
_STEPS: tuple[dict[str, int], ...] = (
    {"num_warps": 1},
    {"BLOCK_ROWS": 1},
    {"BLOCK_COLS": 1},
    {"block_size": 1},
    {"NUM_STAGES": 1},
    {"per_sm": 1},
    {"BLOCK_ROWS": 1, "num_warps": 1},
    {"BLOCK_COLS": 1, "num_warps": 1},
    {"BLOCK_COLS": 1, "BLOCK_ROWS": -1},
    {"block_size": 1, "num_warps": 1},
    {"per_sm": 1, "num_warps": -1},
    {"per_sm": 1, "BLOCK_ROWS": -1},
    {"per_sm": 1, "NUM_STAGES": -1},
)


@dataclass(frozen=True)
class Tried:
    """One setting: its samples in ms, or why it has none."""

    settings: Settings
    samples: tuple[float, ...] = ()
    dropped: str = ""


@dataclass(frozen=True)
class Climb:
    """What a climb found. `best` is the default unless another one is faster outside the noise.

    `ratio` is best / default with its 95 % interval `low` to `high`, both from samples taken after the choice.
    """

    default: Settings
    best: Settings
    default_ms: float
    ms: float
    ratio: float
    low: float
    high: float
    verdict: str
    tried: tuple[Tried, ...]


class Untimed(Exception):
    """The default itself can't be timed."""


def climb(default: Settings, size: int, sift: Sift, timer: Timer, rounds: int = ROUNDS) -> Climb:
    """From the default to the best setting one step away, as long as that gains; then both once more, by themselves.

    `size` is the length of a row, or the number of elements. Raises Untimed.
    """
    best, best_samples = default, _only(timer([default], False))
    tried = [Tried(default, tuple(best_samples))]
    for _ in range(rounds):
        known = [one.settings for one in tried]
        near = [settings for settings in neighbours(best, size) if settings not in known]
        reasons = sift(near)
        tried += [Tried(settings, dropped=reason) for settings, reason in zip(near, reasons, strict=True) if reason]
        kept = [settings for settings, reason in zip(near, reasons, strict=True) if not reason]
        if not kept:
            break
        first, *others = timer([best, *kept], False)
        found = {i: samples for i, samples in enumerate(others) if samples is not None}
        tried += [
            Tried(settings, tuple(found[i])) if i in found else Tried(settings, dropped="does not run, or not right")
            for i, settings in enumerate(kept)
        ]
        if not found:
            break
        winner = min(found, key=lambda i: median(found[i]))
        assert first is not None, "what ran a round ago runs again"
        if median(found[winner]) > (1 - GAIN) * median(first):
            break
        best = kept[winner]
    return _judged(default, best, timer, tried)


def _judged(default: Settings, best: Settings, timer: Timer, tried: list[Tried]) -> Climb:
    if best == default:
        usual = median(tried[0].samples)
        return Climb(default, default, usual, usual, 1.0, 1.0, 1.0, "same", tuple(tried))
    # Fresh samples: of many candidates the luckiest looks fastest in those that it was chosen by.
    before, after = timer([default, best], True)
    assert before is not None and after is not None, "both have run before"
    low, high = ratio_interval(after, before)
    word = verdict(low, high)
    tried += [Tried(default, tuple(before)), Tried(best, tuple(after))]
    ratio = median(after) / median(before)
    chosen = best if word == "faster" else default
    return Climb(default, chosen, median(before), median(after), ratio, low, high, word, tuple(tried))


def _only(found: Sequence[Sequence[float] | None]) -> Sequence[float]:
    (samples,) = found
    if samples is None:
        raise Untimed
    return samples


def neighbours(settings: Settings, size: int) -> list[Settings]:
    """The settings one step away that a device could take, each once."""
    found: list[Settings] = []
    for step in _steps(settings):
        moved = {name: _moved(name, value, step.get(name, 0)) for name, value in settings.items()}
        if moved not in (settings, *found) and _is_sensible(moved, size):
            found.append(moved)
    return found


def _steps(settings: Mapping[str, int]) -> Iterator[dict[str, int]]:
    for step in _STEPS:
        if step.keys() <= settings.keys():
            yield step
            yield {name: -by for name, by in step.items()}


def _moved(name: str, value: int, by: int) -> int:
    if name == "NUM_STAGES":
        return value + by
    return value << by if by >= 0 else value >> -by


def _is_sensible(settings: Settings, size: int) -> bool:
    """Whether a thread gets 1 to 128 elements, and a multiprocessor no more warps than the 64 it can hold."""
    whole = 1 << max(size - 1, 0).bit_length()
    warps, columns = settings["num_warps"], settings.get("BLOCK_COLS", whole)
    tile = settings.get("block_size") or settings.get("BLOCK_ROWS", 1) * columns
    return (
        1 <= warps <= 32
        and all(1 <= value for value in settings.values())
        and settings.get("BLOCK_ROWS", 1) <= 128
        and columns <= max(whole, 16)
        and settings.get("NUM_STAGES", 1) <= 6
        and settings.get("per_sm", 1) <= 32
        and settings.get("per_sm", 1) * warps <= 64
        and warps * 32 <= tile <= warps * 32 * 128
    )
