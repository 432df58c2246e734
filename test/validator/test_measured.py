"""The tables, the assessment and the flags of a report, from rows of the benchmark's CSV."""

from dataclasses import replace
from pathlib import Path

from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import key
from liger_dev.bench.samples import Sampled
from liger_dev.bench.samples import read
from liger_dev.bench.statistics import quantile
from liger_dev.measured import Flag
from liger_dev.measured import against_fastest
from liger_dev.measured import against_itself
from liger_dev.measured import assessment
from liger_dev.measured import flags
from liger_dev.measured import pairs
from liger_dev.measured import points
from liger_dev.measured import table
from liger_dev.measured import verdict_lines

ROW = Measurement(
    "center",
    "liger",
    "full",
    "speed",
    "ms",
    "N",
    "columns",
    4096,
    1.0,
    0.9,
    1.1,
    "{}",
    "H200",
    "2026-01-01 00:00:00",
    "0",
)


def _rows(speed: tuple[float, float], memory: tuple[float, float], x: int = 4096) -> list[Measurement]:
    """Candidate's and baseline's medians of a full pass."""
    metrics = (("speed", "ms", speed), ("memory", "MB", memory))
    return [
        replace(ROW, metric_name=metric, metric_unit=unit, kernel_provider=provider, x_value=x, y_value_50=value)
        for metric, unit, values in metrics
        for provider, value in zip(("liger", "torch"), values, strict=True)
    ]


def test_tables_stand_at_the_largest_x():
    found = pairs([*_rows((1.0, 2.0), (75.0, 100.0)), *_rows((9.0, 9.0), (9.0, 9.0), x=512)])
    assert table("speed", found)[0] == "### Speed (ms) at N = 4096"
    assert table("speed", found)[-1] == "| full | 1 | 2 | 2.00x |"
    assert table("memory", found)[-1] == "| full | 75 | 100 | 25.0 % |"


def test_assessment_tells_speed_memory_both_or_neither():
    better, worse, same = (1.0, 2.0), (2.0, 1.0), (1.0, 1.0)
    assert "**both**" in assessment(_rows(better, better))
    assert "**speed**" in assessment(_rows(better, same))
    assert "**memory**" in assessment(_rows(worse, better))
    assert "**neither**" in assessment(_rows(same, worse))


def test_the_assessment_says_what_it_compares_with_and_by_how_much():
    rows = [*_rows((1.0, 2.0), (75.0, 100.0)), *_rows((1.1, 1.0), (75.0, 100.0), x=512)]
    rows += [replace(row, metric_name="device_time", y_value_50=0.4 * row.y_value_50) for row in rows[:2]]
    assert assessment(rows) == (
        "Over eager PyTorch it gains **memory**: a full pass takes 0.50 to 1.10 of its call time, 0.50 of its device time, "
        "0.75 of its memory. A gain is one that no size takes back by more than 2 %; speed is that of calls."
    )


def test_a_kernel_without_gradients_is_judged_by_its_forward_pass():
    rows = [replace(row, kernel_operation_mode="forward") for row in _rows((1.0, 2.0), (75.0, 100.0))]
    assert "**both**: a forward pass takes 0.50 of its call time" in assessment(rows)


def test_a_gain_at_one_size_and_a_loss_at_another_is_no_gain():
    mixed = [*_rows((1.0, 2.0), (1.0, 1.0)), *_rows((2.0, 1.0), (1.0, 1.0), x=512)]
    assert "**neither**" in assessment(mixed)


def test_a_catastrophic_loss_at_any_x_is_flagged_even_where_the_table_shows_a_gain():
    rows = [*_rows((1.0, 2.0), (1.0, 1.0)), *_rows((5.0, 1.0), (1.0, 1.0), x=512)]
    assert flags(rows, pairs(rows)) == (Flag("speed", "speed, full, N = 512: 5.0 times PyTorch's"),)


def test_a_launch_more_of_a_short_pass_is_no_catastrophe():
    short, long = _rows((0.05, 0.02), (1.0, 1.0)), _rows((0.5, 0.2), (1.0, 1.0))
    assert flags(short, pairs(short)) == () and len(flags(long, pairs(long))) == 1


def test_more_than_the_device_can_do_is_flagged_as_an_error_of_the_measurement():
    (flag,) = flags([replace(ROW, metric_name="bandwidth_share", y_value_50=1.31)], ())
    assert "131 %" in flag.text and flag.metric == "impossible"


def test_rows_of_other_providers_and_metrics_make_no_pair():
    assert pairs([ROW, replace(ROW, kernel_provider="torch_compile"), replace(ROW, metric_name="device_time")]) == ()


def _sampled(provider: str, metric: str, values: list[float], mode: str = "full", x: int = 4096) -> Sampled:
    row = replace(ROW, kernel_provider=provider, metric_name=metric, kernel_operation_mode=mode, x_value=x)
    return Sampled(key(row), row.timestamp, tuple(values))


def test_a_verdict_is_given_against_the_fastest_baseline_and_not_the_weak_one():
    samples = [
        _sampled("liger", "device_time", [1.0, 1.01, 0.99] * 8),
        _sampled("torch", "device_time", [9.0] * 24),
        _sampled("liger_kernel", "device_time", [0.8] * 24),
        _sampled("liger", "bandwidth_share", [0.4] * 24),
    ]
    (point,) = points(samples)
    assert (point.found.baseline, point.found.verdict) == ("liger_kernel", "slower")
    lines = list(verdict_lines([point]))
    assert lines[0] == "### Against the fastest baseline at N = 4096"
    assert lines[4].startswith("| full | device time | liger_kernel | 1.250 (") and lines[4].endswith(
        "| slower | 40 % |"
    )
    assert "Over all sizes and modes, by device time: 1 slower." in lines
    assert any("40 % of the copy bandwidth; not explained by its length" in line for line in lines)


def _recorded(name: str = "rms_norm_h200") -> tuple[Sampled, ...]:
    """Device times of rms_norm on an H200: of its backward against others, or of the kernel against itself."""
    return read(Path(__file__).parent / f"{name}.jsonl")


def test_the_same_kernel_twice_is_the_same():
    found = points(_recorded("rms_norm_h200_noise"))
    assert len(found) == 6 and {point.found.verdict for point in found} == {"same"}
    (line, _) = against_itself(_recorded("rms_norm_h200_noise"))
    assert line == "The kernel against itself, in as many sizes and modes as were tried: 6 same by device time."
    assert list(against_itself(())) == []


def test_a_kernel_is_faster_at_one_size_and_slower_at_another():
    verdicts = {point.x: (point.found.baseline, point.found.verdict) for point in points(_recorded())}
    assert verdicts == {"4096": ("torch_compile", "faster"), "16384": ("liger_kernel", "slower")}


def test_the_assessment_names_the_fastest_baseline_at_each_size():
    full = [replace(one, key=(*one.key[:2], "full", *one.key[3:])) for one in _recorded()]
    assert against_fastest(points(full)) == (
        "Against the fastest baseline of each size, a full pass's device time is "
        "faster at H = 4096 (0.75 of torch_compile's), slower at H = 16384 (1.22 of liger_kernel's)."
    )
    assert against_fastest(points(_recorded())) == ""


def test_a_kernel_that_works_three_times_as_long_is_slower_and_catastrophic():
    backward = [one for one in _recorded() if one.x == "4096"]
    slow = [
        replace(one, samples=tuple(3 * value for value in one.samples)) for one in backward if one.provider == "liger"
    ]
    baseline = [one for one in backward if one.provider == "torch_compile"]
    (point,) = [point for point in points([*slow, *baseline]) if point.metric == "device_time"]
    assert point.found.verdict == "slower" and point.found.low > 2
    rows = _rows((quantile(slow[0].samples, 0.5), quantile(baseline[0].samples, 0.5)), (1.0, 1.0))
    assert [flag.metric for flag in flags(rows, pairs(rows))] == ["speed"]


def test_a_kernel_that_skips_its_work_is_impossible():
    wanted = ("liger", "bandwidth_share", "4096")
    (share,) = [one for one in _recorded() if (one.provider, one.metric, one.x) == wanted]
    skipped = tuple(10 * value for value in share.samples)  # a tenth of the time for the same bytes
    row = replace(ROW, metric_name="bandwidth_share", y_value_50=quantile(skipped, 0.5))
    assert [flag.metric for flag in flags([row], ())] == ["impossible"]


def test_a_short_pass_below_half_of_the_bandwidth_has_its_reason():
    samples = [_sampled(provider, "device_time", [0.004] * 20, x=64) for provider in ("liger", "torch")]
    lines = list(verdict_lines(points([*samples, _sampled("liger", "bandwidth_share", [0.2] * 20, x=64)])))
    assert any("the pass takes 4.0 µs, too short to fill the device" in line for line in lines)
