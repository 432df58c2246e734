"""The tables, the assessment and the flags of a report, from rows of the benchmark's CSV."""

from dataclasses import replace

from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import key
from liger_dev.bench.samples import Sampled
from liger_dev.measured import Flag
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
    assert "**both**" in assessment(pairs(_rows(better, better)))
    assert "**speed**" in assessment(pairs(_rows(better, same)))
    assert "**memory**" in assessment(pairs(_rows(worse, better)))
    assert "**neither**" in assessment(pairs(_rows(same, worse)))


def test_a_gain_at_one_size_and_a_loss_at_another_is_no_gain():
    mixed = [*_rows((1.0, 2.0), (1.0, 1.0)), *_rows((2.0, 1.0), (1.0, 1.0), x=512)]
    assert "**neither**" in assessment(pairs(mixed))


def test_a_catastrophic_loss_at_any_x_is_flagged_even_where_the_table_shows_a_gain():
    rows = [*_rows((1.0, 2.0), (1.0, 1.0)), *_rows((5.0, 1.0), (1.0, 1.0), x=512)]
    assert flags(rows, pairs(rows)) == (Flag("speed", "speed, full, N = 512: 5.0 times PyTorch's"),)


def test_more_than_the_device_can_do_is_flagged_as_an_error_of_the_measurement():
    (flag,) = flags([replace(ROW, metric_name="bandwidth_share", y_value_50=1.31)], ())
    assert "131 %" in flag.text and flag.metric == "impossible"


def test_rows_of_other_providers_and_metrics_make_no_pair():
    assert pairs([ROW, replace(ROW, kernel_provider="torch_compile"), replace(ROW, metric_name="device_time")]) == ()


def _sampled(provider: str, metric: str, values: list[float], mode: str = "full", x: int = 4096) -> Sampled:
    row = replace(ROW, kernel_provider=provider, metric_name=metric, kernel_operation_mode=mode, x_value=x)
    return Sampled(key(row), row.timestamp, tuple(values), {}, {}, {})


def test_a_verdict_is_given_against_the_fastest_baseline_and_not_the_weak_one():
    samples = [
        _sampled("liger", "device_time", [1.0, 1.01, 0.99] * 8),
        _sampled("torch", "device_time", [9.0] * 24),
        _sampled("liger_kernel", "device_time", [0.8] * 24),
        _sampled("liger", "bandwidth_share", [0.4] * 24),
    ]
    (point,) = points(samples)
    assert (point.found.baseline, point.found.verdict, point.share) == ("liger_kernel", "slower", 0.4)
    lines = list(verdict_lines([point]))
    assert lines[0] == "### Against the fastest baseline at N = 4096"
    assert lines[4].startswith("| full | device time | liger_kernel | 1.250 (") and lines[4].endswith(
        "| slower | 40 % |"
    )
    assert "Over all sizes and modes, by device time: 1 slower." in lines
    assert any("40 % of the copy bandwidth; not explained by its length" in line for line in lines)


def test_the_same_kernel_twice_is_the_same_and_a_slow_one_is_slower():
    # Times of one kernel measured twice in turns, and of one that does its work three times.
    recorded = [0.1312, 0.1308, 0.1319, 0.1305, 0.1311, 0.1314, 0.1309, 0.1321, 0.1307, 0.1310] * 2
    again = [0.1310, 0.1315, 0.1306, 0.1312, 0.1309, 0.1318, 0.1308, 0.1311, 0.1313, 0.1307] * 2
    (same,) = points([_sampled("liger", "speed", recorded), _sampled("liger_again", "speed", again)])
    assert same.found.verdict == "same"
    slow = [3 * value for value in recorded]
    (slower,) = points([_sampled("liger", "speed", slow), _sampled("torch", "speed", again)])
    assert slower.found.verdict == "slower" and slower.found.low > 2.9
    rows = _rows((3 * 0.131, 0.131), (1.0, 1.0))
    assert [flag.metric for flag in flags(rows, pairs(rows))] == ["speed"]


def test_a_short_pass_below_half_of_the_bandwidth_has_its_reason():
    samples = [_sampled(provider, "device_time", [0.004] * 20, x=64) for provider in ("liger", "torch")]
    lines = list(verdict_lines(points([*samples, _sampled("liger", "bandwidth_share", [0.2] * 20, x=64)])))
    assert any("the pass takes 4.0 µs, too short to fill the device" in line for line in lines)
