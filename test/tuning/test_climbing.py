"""The climb over launch settings with scripted compilers and timers: what is tried, what is chosen, and when it stays."""

import random

import pytest

from liger_dev.bench.climbing import Untimed
from liger_dev.bench.climbing import climb
from liger_dev.bench.climbing import neighbours

ROW = {"BLOCK_ROWS": 1, "num_warps": 8}
PERSISTENT = {"BLOCK_ROWS": 2, "NUM_STAGES": 3, "num_warps": 4, "per_sm": 4}


def kept(several):
    return ["" for _ in several]


def timer_of(cost, noise=0.001, seed=0):
    """Twenty samples about `cost(settings)` milliseconds; None where it gives None."""
    rng = random.Random(seed)

    def timer(several, last):
        costs = [cost(settings) for settings in several]
        return [None if ms is None else [ms * rng.gauss(1, noise) for _ in range(20)] for ms in costs]

    return timer


def test_it_climbs_several_steps_to_the_fastest():
    def cost(settings):
        return 1 + abs(settings["num_warps"] - 1) / 10 + abs(settings["BLOCK_ROWS"] - 1) / 10

    found = climb({"BLOCK_ROWS": 4, "num_warps": 8}, 1024, kept, timer_of(cost))
    assert found.best == {"BLOCK_ROWS": 1, "num_warps": 1} and found.verdict == "faster"
    assert found.ms == pytest.approx(1, rel=0.01) and found.default_ms == pytest.approx(2, rel=0.01)
    assert found.low <= found.ratio <= found.high < 0.55


@pytest.mark.parametrize("gain", [0.0, 0.015])
def test_the_default_stays_where_another_is_not_faster_outside_the_margin(gain):
    found = climb(ROW, 4096, kept, timer_of(lambda s: 1.0 if s == ROW else 1 - gain, noise=0.002))
    assert found.best == ROW and found.verdict != "faster"


def test_the_luckiest_of_equal_ones_is_not_chosen():
    found = [climb(PERSISTENT, 1024, kept, timer_of(lambda s: 1.0, noise=0.1, seed=seed)) for seed in range(20)]
    assert any(one.tried[-1].settings != one.default for one in found), "none of them looked faster: no test"
    assert sum(one.best != one.default for one in found) <= 1


def test_what_spills_is_not_timed_and_what_fails_not_chosen():
    timed = []

    def sift(several):
        return ["spills 64 bytes" if settings["num_warps"] < 8 else "" for settings in several]

    def cost(settings):
        timed.append(settings)
        return None if settings["BLOCK_ROWS"] > 1 else 1 / settings["num_warps"]

    found = climb(ROW, 4096, sift, timer_of(cost))
    assert all(settings["num_warps"] >= 8 for settings in timed)
    assert found.best == {"BLOCK_ROWS": 1, "num_warps": 32}
    dropped = {tuple(one.settings.values()): one.dropped for one in found.tried if one.dropped}
    assert dropped[(1, 4)] == "spills 64 bytes" and dropped[(2, 8)] == "does not run, or not right"
    assert all(one.dropped or len(one.samples) == 20 for one in found.tried)


def test_a_default_without_times_is_no_point():
    with pytest.raises(Untimed):
        climb(ROW, 4096, kept, timer_of(lambda settings: None))


def test_nothing_is_tried_twice_but_for_the_last_word():
    found = climb(PERSISTENT, 1024, kept, timer_of(lambda s: 1 / s["per_sm"]))
    tried = [tuple(one.settings.values()) for one in found.tried]
    assert len(set(tried)) == len(tried) - 2  # the default and the choice, timed once more by themselves
    assert found.best["per_sm"] > 4


@pytest.mark.parametrize("size", [1, 100, 1024, 4096, 65536])
@pytest.mark.parametrize(
    "default",
    [ROW, PERSISTENT, {"BLOCK_ROWS": 1, "BLOCK_COLS": 8192, "num_warps": 8}, {"block_size": 1024, "num_warps": 4}],
    ids=["row", "persistent", "looped", "flat"],
)
def test_neighbours_are_settings_that_a_device_can_take(default, size):
    found = neighbours(default, size)
    assert default not in found and len({tuple(one.values()) for one in found}) == len(found)
    for one in found:
        assert one.keys() == default.keys() and 1 <= one["num_warps"] <= 32
        assert all(value & (value - 1) == 0 for name, value in one.items() if name != "NUM_STAGES")
        assert one.get("per_sm", 1) * one["num_warps"] <= 64


def test_a_row_kernel_has_neighbours_in_both_of_its_settings():
    assert {tuple(one.values()) for one in neighbours(ROW, 4096)} == {(1, 4), (1, 16), (2, 8), (2, 16)}
