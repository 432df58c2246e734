"""The table of all kernels for a README, and the roofline: in a plot of times, and over all kernels."""

from dataclasses import replace

import pytest

from liger_dev.bench import plots
from liger_dev.bench import table
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import key
from liger_dev.bench.samples import Circumstances
from liger_dev.bench.samples import Sampled
from liger_dev.errors import BadInput

TIMES = {"liger": 0.04, "torch": 0.4, "liger_kernel": 0.05}


def _row(kernel, provider, metric, x, y):
    fixed = ("H", "hidden size", x, y, y, y, '{"N": 8192, "dtype": "bfloat16"}', "NVIDIA H200", "2026-11-30 12:00:00")
    return Measurement(kernel, provider, "forward", metric, "ms", *fixed, "0.1.0")


ROWS = [
    row
    for kernel in ("rms_norm", "swiglu")
    for provider, milliseconds in TIMES.items()
    for x in (1024, 4096, 16384)
    for row in (
        _row(kernel, provider, "device_time", x, milliseconds * x / 4096),
        _row(kernel, provider, "bandwidth_share", x, 0.03 / milliseconds),
    )
]
SAMPLES = [
    Sampled(key(row), row.timestamp, (row.y_value_50,) * 20, Circumstances({"torch": "2.11.0"}))
    for row in ROWS
    if row.metric_name == "device_time"
]


def test_a_row_a_kernel_at_the_model_s_size_with_a_verdict():
    header, _, first, second = table.short(ROWS, SAMPLES)
    assert header == "| kernel | size | generated | eager | liger-kernel | memory (MB) | against the fastest |"
    assert first == ("| rms_norm | H=4096 | 0.040 / – / – | 0.400 / – / – | 0.050 / – / – | – | faster / – / – |")
    assert second.startswith("| swiglu |")
    assert "NVIDIA H200, 2026-11-30; torch 2.11.0." in table.caption(ROWS, SAMPLES)


def test_a_later_sweep_over_models_does_not_take_the_place_of_the_sizes():
    models = [
        replace(row, x_name="model_config", x_value="llama_3_8b", timestamp="2026-12-01 12:00:00")
        for row in ROWS
        if row.kernel_name == "swiglu" and row.x_value == 4096
    ]
    _, _, *lines = table.short([*ROWS, *models], SAMPLES)
    assert [line.split(" | ")[1] for line in lines] == ["H=4096", "H=4096"]
    (line,) = table.short(models, ())[2:]
    assert line.startswith("| swiglu | model_config=llama_3_8b | 0.040 / – / – |")


def test_the_table_goes_between_its_marks_again_and_again():
    text = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    once = table.into(text, ["| new \\1 |"], "README.md")
    assert once == f"before\n{table.BEGIN}\n\n| new \\1 |\n\n{table.END}\nafter\n"
    assert table.into(once, ["| new \\1 |"], "README.md") == once
    with pytest.raises(BadInput, match="where the table goes"):
        table.into("no marks", [], "README.md")


def test_a_plot_of_times_has_the_roofline_of_its_bytes():
    drawn = [row for row in ROWS if row.kernel_name == "rms_norm" and row.metric_name == "device_time"]
    least = plots.roof(drawn, ROWS)
    assert least == pytest.approx({1024: 0.0075, 4096: 0.03, 16384: 0.12})
    lines = {line.get_label(): list(line.get_ydata()) for line in plots.draw(drawn, least).axes[0].lines}
    assert lines["roofline"] == pytest.approx([0.0075, 0.03, 0.12])
    memory = [_row("rms_norm", "liger", "memory", 4096, 12.0)]
    assert plots.roof(memory, ROWS) == {}
    assert [line.get_label() for line in plots.draw(memory, {}).axes[0].lines] == ["liger"]


def test_all_kernels_stand_in_one_roofline_at_their_largest_size(tmp_path):
    (axes,) = plots.draw_roofline(ROWS).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["swiglu (H=16384)", "rms_norm (H=16384)"]
    shares = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    assert shares["liger"] == pytest.approx([0.75, 0.75]) and shares["torch"] == pytest.approx([0.075, 0.075])
    assert plots.plot_roofline(ROWS, tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


def test_a_kernel_stands_at_one_size_though_a_pass_was_not_measured_there():
    full = [replace(row, kernel_operation_mode="full") for row in ROWS if row.kernel_name == "swiglu"]
    small = [row for row in ROWS if row.kernel_name == "rms_norm" or row.x_value == 1024]
    forward, both = plots.draw_roofline([*small, *full]).axes
    assert [label.get_text() for label in forward.get_yticklabels()] == ["swiglu (H=16384)", "rms_norm (H=16384)"]
    assert [len(line.get_ydata()) for line in forward.lines] == [1, 1, 1, 2], "swiglu's forward is of another size"
    assert [list(line.get_ydata()) for line in both.lines[:3]] == [[0]] * 3


def test_a_size_that_was_measured_of_another_op_file_is_marked():
    samples = [
        replace(one, under=Circumstances(op="new" if one.key[5] == "4096" and one.key[0] == "swiglu" else "old"))
        for one in SAMPLES
    ]
    older = table.sizes_of_older(samples, {"rms_norm": "new", "swiglu": "new"})
    assert {(kernel, x) for kernel, _, x, _, _ in older} == {
        *(("rms_norm", x) for x in ("1024", "4096", "16384")),
        *(("swiglu", x) for x in ("1024", "16384")),
    }
    _, _, first, second = table.short(ROWS, samples, older)
    assert first.startswith("| rms_norm | H=4096 ‡ |") and second.startswith("| swiglu | H=4096 |")
    assert "‡: measured of the op file as it was before" in table.caption(ROWS, samples, older)
    assert "‡" not in "".join([table.caption(ROWS, samples), *table.short(ROWS, samples)])
