"""Plots of synthetic rows, read back as figures; the model registry; and that the tool's own process needs no torch."""

import subprocess
import sys

from dataclasses import replace

import pytest

from liger_dev.bench.csv import Measurement
from liger_dev.bench.models import DEFAULT_MODEL
from liger_dev.bench.models import MODELS
from liger_dev.bench.models import model
from liger_dev.bench.plots import draw
from liger_dev.bench.plots import newest_configuration
from liger_dev.bench.plots import plot
from liger_dev.errors import BadInput


def _row(provider, x, y, **changes):
    row = Measurement(
        "rms_norm", provider, "forward", "speed", "ms", "H", "hidden size", x, y, 0.9 * y, 1.2 * y,
        '{"B": 4, "dtype": "bfloat16"}', "synthetic", "2026-01-01 00:00:00", "0.1.0",
    )  # fmt: skip
    return replace(row, **changes)


ROWS = [
    _row(provider, x, x / speed) for provider, speed in (("torch", 2e4), ("liger", 4e4)) for x in (8192, 1024, 2048)
]


def test_one_file_a_metric_and_mode(tmp_path):
    rows = [*ROWS, _row("liger", 1024, 9.0, metric_name="memory", metric_unit="MB", kernel_operation_mode="full")]
    paths = plot(rows, tmp_path / "visualizations")
    assert [path.name for path in paths] == ["rms_norm_speed_forward.png", "rms_norm_memory_full.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert [path.read_bytes() for path in plot(rows, tmp_path / "again")] == [path.read_bytes() for path in paths]


def test_a_mode_that_only_baselines_have_is_not_drawn(tmp_path):
    others = [_row(name, 1024, 1.0, kernel_operation_mode="backward") for name in ("torch", "liger_kernel")]
    assert [path.name for path in plot([*ROWS, *others], tmp_path)] == ["rms_norm_speed_forward.png"]
    alone = [_row("liger", 1024, 1.0, metric_name="kernel_time"), _row("torch", 1024, 2.0, metric_name="device_time")]
    assert [path.name for path in plot(alone, tmp_path)] == ["rms_norm_device_time_forward.png"]
    assert [line.get_label() for line in draw(alone).axes[0].lines] == ["liger, kernels alone", "torch"]


def test_a_line_a_provider_in_the_order_of_sizes():
    axes = draw(ROWS).axes[0]
    assert [line.get_label() for line in axes.lines] == ["liger", "torch"]
    assert list(axes.lines[0].get_ydata()) == [x / 4e4 for x in (1024, 2048, 8192)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1024", "2048", "8192"]
    assert axes.get_ylim()[0] == 0
    shade = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert shade.min() == pytest.approx(0.9 * 1024 / 4e4) and shade.max() == pytest.approx(1.2 * 8192 / 4e4)


def test_providers_far_apart_stand_on_a_logarithmic_axis():
    far = [_row("torch", 1024, 1.0), _row("liger", 1024, 0.1)]
    assert draw(far).axes[0].get_yscale() == "log"
    shares = [_row(name, 1024, y, metric_name="bandwidth_share") for name, y in (("torch", 0.05), ("liger", 0.9))]
    assert draw(shares).axes[0].get_yscale() == "linear"


def test_models_names_stand_on_the_axis_too():
    axes = draw([_row("liger", name, 1.0) for name in ("qwen2.5_7b", "llama_3_8b")]).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["llama_3_8b", "qwen2.5_7b"]


def test_configurations_are_not_mixed():
    newer = _row("liger", 4096, 1.0, gpu_name="another", timestamp="2026-02-01 00:00:00")
    assert newest_configuration([*ROWS, newer]) == [newer]


def test_models_are_consistent():
    assert DEFAULT_MODEL == "llama_3_8b" and model().intermediate_size == 14336
    for name, sizes in MODELS.items():
        assert sizes.name == name and sizes.num_attention_heads % sizes.num_key_value_heads == 0
    with pytest.raises(BadInput, match="gpt_9"):
        model("gpt_9")


def test_rows_plots_and_models_need_no_torch():
    code = "import liger_dev.bench.csv, liger_dev.bench.plots, liger_dev.bench.models, liger_dev.bench.statistics, sys;"
    code += "print(sorted({'torch', 'triton', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
