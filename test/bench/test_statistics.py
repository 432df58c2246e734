"""Quantiles, intervals and verdicts on samples whose answer is known."""

import random
import statistics

import pytest

from liger_dev.bench.statistics import compare_with_fastest
from liger_dev.bench.statistics import quantiles
from liger_dev.bench.statistics import ratio_interval
from liger_dev.bench.statistics import verdict


def _times(middle, spread, count=40, seed=0):
    rng = random.Random(seed)
    return [rng.gauss(middle, spread) for _ in range(count)]


def test_quantiles_are_median_then_low_then_high():
    assert quantiles([5.0, 1.0, 3.0, 2.0, 4.0, 0.0]) == (2.5, 1.0, 4.0)
    assert quantiles([7.0]) == (7.0, 7.0, 7.0)


def test_interval_covers_the_true_ratio_about_as_often_as_it_says():
    hits = 0
    for seed in range(60):
        low, high = ratio_interval(_times(0.9, 0.05, 30, seed), _times(1.0, 0.05, 30, seed + 1000), seed)
        hits += low <= 0.9 <= high
    assert 52 <= hits <= 60


def test_interval_narrows_with_more_samples_and_repeats():
    few = ratio_interval(_times(1.0, 0.1, 20), _times(1.0, 0.1, 20, 1))
    many = ratio_interval(_times(1.0, 0.1, 500), _times(1.0, 0.1, 500, 1))
    assert many[1] - many[0] < few[1] - few[0]
    assert few == ratio_interval(_times(1.0, 0.1, 20), _times(1.0, 0.1, 20, 1))


@pytest.mark.parametrize(
    "low, high, word",
    [(0.8, 0.9, "faster"), (1.1, 1.2, "slower"), (0.99, 1.01, "same"), (0.95, 1.05, "inconclusive"),
     (0.95, 0.99, "inconclusive"), (1.01, 1.05, "inconclusive")],
)  # fmt: skip
def test_verdict_in_words(low, high, word):
    assert verdict(low, high) == word


def test_the_candidate_is_held_to_the_fastest_baseline():
    samples = {
        "liger": _times(1.0, 0.001),
        "torch": _times(2.0, 0.001, seed=1),
        "torch_compile": _times(0.9, 0.001, seed=2),
    }
    found = compare_with_fastest("liger", samples)
    assert (found.baseline, found.verdict) == ("torch_compile", "slower")
    assert found.ratio == pytest.approx(1.11, rel=0.01) and found.low <= found.ratio <= found.high


def test_the_same_samples_are_the_same():
    times = _times(1.0, 0.005)
    assert compare_with_fastest("liger", {"liger": times, "torch": list(reversed(times))}).verdict == "same"
    assert statistics.median(times) > 0


def test_no_comparison_without_a_second_provider():
    assert compare_with_fastest("liger", {"liger": [1.0]}) is None
    assert compare_with_fastest("liger", {"torch": [1.0]}) is None
