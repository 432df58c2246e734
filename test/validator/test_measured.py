"""The tables, the assessment and the flags of a report, from rows of the benchmark's CSV."""

from dataclasses import replace

from liger_dev.bench.csv import Measurement
from liger_dev.measured import assessment
from liger_dev.measured import flags
from liger_dev.measured import pairs
from liger_dev.measured import table

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
    assert flags(rows, pairs(rows)) == ("speed, full, N = 512: 5.0 times PyTorch's",)


def test_more_than_the_device_can_do_is_flagged_as_an_error_of_the_measurement():
    (flag,) = flags([replace(ROW, metric_name="bandwidth_share", y_value_50=1.31)], ())
    assert "131 %" in flag


def test_rows_of_other_providers_and_metrics_make_no_pair():
    assert pairs([ROW, replace(ROW, kernel_provider="torch_compile"), replace(ROW, metric_name="device_time")]) == ()
