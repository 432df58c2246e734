"""The file with every size: a line a pass, its floor, its verdict; what can't be replayed is marked; noise beside it."""

from dataclasses import replace

from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import key
from liger_dev.bench.full_table import full
from liger_dev.bench.samples import Circumstances
from liger_dev.bench.samples import Sampled

ROW = Measurement(
    "rms_norm",
    "liger",
    "forward",
    "device_time",
    "ms",
    "H",
    "hidden size",
    4096,
    0.04,
    0.04,
    0.04,
    '{"N": 8192, "dtype": "bfloat16"}',
    "NVIDIA H200",
    "2026-11-30 12:00:00",
    "0.1.0",
)
REASON = "operation not permitted when stream is capturing"


def _row(provider: str, metric: str, value: float, **changes) -> Measurement:
    return replace(
        ROW,
        kernel_provider=provider,
        metric_name=metric,
        metric_unit="MB" if metric == "memory" else "ms",
        y_value_50=value,
        **changes,
    )


ROWS = [
    _row(provider, metric, value * x / 4096, x_value=x)
    for x in (1024, 16384)
    for provider, metric, value in (
        ("liger", "device_time", 0.04),
        ("torch", "device_time", 0.4),
        ("liger_kernel", "kernel_time", 0.03),
        ("liger", "speed", 0.1),
        ("torch", "speed", 0.1),
        ("liger", "memory", 128.0),
    )
] + [_row("liger", "bandwidth_share", 0.75, x_value=16384)]


def _samples(rows, spread=(1.0,)):
    times = [row for row in rows if row.metric_unit == "ms" and row.metric_name != "bandwidth_share"]
    under = Circumstances({"torch": "2.11.0"}, no_replay={"liger_kernel": REASON})
    return [
        Sampled(key(row), row.timestamp, tuple(row.y_value_50 * spread[i % len(spread)] for i in range(20)), under)
        for row in times
    ]


def _section(text: str, title: str) -> list[str]:
    return [line for line in text.split(f"## {title}\n")[1].split("\n## ")[0].splitlines() if line.startswith("|")]


def test_every_size_has_a_line_in_order_with_its_floor_and_its_verdict():
    text = full(ROWS, _samples(ROWS), ())
    assert text.startswith("# Measurements\n\nNVIDIA H200, 2026-11-30; torch 2.11.0. ")
    head, _, small, large = _section(text, "Device time")
    assert head == (
        "| kernel | size | pass | generated | eager | liger-kernel | floor | ratio (95 % interval) | verdict |"
    )
    ratio = "1.333 (1.333 to 1.333) | slower |"
    assert small == f"| rms_norm | H=1024 | forward | 0.0100 | 0.1000 | 0.0075† | – | {ratio}"
    assert large == f"| rms_norm | H=16384 | forward | 0.1600 | 1.6000 | 0.1200† | 0.1200 | {ratio}"
    assert _section(text, "Call time")[-1].endswith("| 0.4000 | 0.4000 | 1.000 (1.000 to 1.000) | same |")
    assert _section(text, "Memory")[-1] == "| rms_norm | H=16384 | forward | 512.0 |"


def test_verdicts_are_counted_and_what_is_slower_is_named_first():
    text = full(ROWS, _samples(ROWS), ())
    assert "| device time | 2 | 0 | 0 | 2 | 0 |" in text and "| call time | 2 | 0 | 2 | 0 | 0 |" in text
    slower = text.index("Slower by device time, with the ratio:\n\n- rms_norm: forward at H=1024 (1.33), forward at H=")
    assert slower < text.index("## Device time") and "Slower by call time" not in text


def test_a_time_of_kernels_alone_is_marked_and_its_reason_given():
    text = full(ROWS, _samples(ROWS), ())
    assert f"\n† liger_kernel can't be replayed as a CUDA graph ({REASON}): its device time is the sum" in text
    replayed = [row for row in ROWS if row.metric_name != "kernel_time"]
    assert "can't be replayed" not in full(replayed, _samples(replayed), ())


def test_a_kernel_against_itself_stands_beside_what_it_bounds():
    noise = [_row(name, metric, 0.04) for name in ("liger", "liger_again") for metric in ("device_time", "speed")]
    lines = _section(full(ROWS, _samples(ROWS), _samples(noise, (0.97, 1.0, 1.03))), "The kernel against itself")
    assert len(lines) == 4 and "| rms_norm | H=4096 | forward | device time | 1.000 (0." in lines[2]
    assert lines[3].endswith("| same |")
    assert "against itself" not in full(ROWS, _samples(ROWS), ())
    other = [replace(one, under=Circumstances(op="another")) for one in _samples(noise)]
    assert "against itself" not in full(ROWS, _samples(ROWS), other)


def test_other_configurations_and_unknown_providers_stay_out():
    older = [replace(row, gpu_name="an older GPU", timestamp="2026-11-01 00:00:00") for row in ROWS]
    text = full([*older, *ROWS, _row("liger_probe", "device_time", 0.01)], _samples(ROWS), ())
    assert "older" not in text and "probe" not in text


def test_a_size_of_another_op_file_is_marked_in_every_table():
    _, _, _, _, _, _, config, gpu = key(ROW)
    text = full(ROWS, _samples(ROWS), (), frozenset({("rms_norm", "H", "16384", config, gpu)}))
    for title in ("Device time", "Call time", "Memory"):
        small, large = _section(text, title)[-2:]
        assert small.startswith("| rms_norm | H=1024 |") and large.startswith("| rms_norm | H=16384 ‡ |")
    assert "‡: measured of the op file as it was" in text.split("\n## ")[0]
    assert "‡" not in full(ROWS, _samples(ROWS), ())
