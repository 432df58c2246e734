"""A provider that can't be captured, or that breaks the device: a new process goes on, and says what it left out.

The device is pretended here; test_measure.py has the same on a real one.
"""

from dataclasses import replace

import pytest
import torch

from liger_dev.bench import harness
from liger_dev.bench import measure
from liger_dev.bench.csv import read
from liger_dev.bench.harness import BenchmarkSpec
from liger_dev.bench.harness import run
from liger_dev.bench.kernel_time import busy_ms
from liger_dev.bench.limits import bytes_moved
from liger_dev.bench.passes import Pass
from liger_dev.bench.samples import path_beside
from liger_dev.bench.samples import read as read_samples

CAPTURED = "operation not permitted when stream is capturing"


def _product(x, w):
    return x * w


def _waits(x, w):
    return x * w


def _breaks(x, w):
    raise RuntimeError("an illegal memory access was encountered")


def _spec(folder, **providers):
    def make_inputs(M, H, dtype, device):
        return torch.randn(M, H, requires_grad=True), torch.randn(H, requires_grad=True)

    script = str(folder / "benchmark/scripts/benchmark_product.py")
    stated = {"liger": _product, "torch": lambda x, w: x * w, **providers}
    return BenchmarkSpec("product", make_inputs, stated, "H", "hidden size", (4, 8), {"M": 2}, script)


def _graph_pass(function, inputs, mode):
    if function is _waits:
        try:
            raise RuntimeError(f"CUDA error: {CAPTURED}\nand advice")
        except RuntimeError:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture") from None
    return Pass(lambda: None, lambda: None)


@pytest.fixture
def device(monkeypatch, tmp_path):
    """A CUDA device as far as the harness looks; the commands of the processes that it would become."""
    commands: list[list[str]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(harness, "device_lock", lambda shared=False: open(tmp_path / "lock", "w"))
    monkeypatch.setattr(harness, "device_state", dict)
    monkeypatch.setattr(harness, "copy_bandwidth", lambda: 1e12)
    monkeypatch.setattr(harness, "fitting", lambda setting: (tuple(setting.sweep.points), ()))
    monkeypatch.setattr(harness, "go_on", lambda command: commands.append(command) or 0)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    monkeypatch.setattr(measure, "free_unused", lambda: None)
    monkeypatch.setattr(measure, "is_fit", lambda: True)
    monkeypatch.setattr(measure, "check_streams", lambda *given: None)
    monkeypatch.setattr(measure, "peak_megabytes", lambda build: [1.0, 1.0, 1.0])
    monkeypatch.setattr(measure, "graph_pass", _graph_pass)
    monkeypatch.setattr(measure, "time_interleaved", lambda passes, **given: {name: [2.0] * 20 for name in passes})
    monkeypatch.setattr(measure, "kernel_times", lambda one: [3.0] * 20)
    return commands


def _times(path, provider):
    return {row.metric_name for row in read(path) if row.kernel_provider == provider and row.metric_unit == "ms"}


def test_a_failed_capture_ends_the_process_and_the_next_one_measures_without_it(device, tmp_path, capsys):
    spec, out = _spec(tmp_path, liger_kernel=_waits), tmp_path / "all.csv"
    argv = ["--out", str(out), "--modes", "forward"]
    assert run(spec, argv) == 0
    (command,) = device
    assert command[1:] == [spec.script, *argv, "--no-replay", f"liger_kernel=CUDA error: {CAPTURED}"]
    assert read(out) == ()
    assert run(spec, command[2:]) == 0 and len(device) == 1
    assert _times(out, "liger") == _times(out, "torch") == {"speed", "device_time"}
    assert _times(out, "liger_kernel") == {"speed", "kernel_time"}
    printed = capsys.readouterr().out
    assert f"one by one: CUDA error: {CAPTURED}\n" in printed and "going on in a new process" in printed
    # The kernel was compared with the fastest, which was not the one that took 3 ms.
    assert "liger takes 1.000 (1.000 to 1.000) of torch: same" in printed
    assert run(spec, command[2:]) == 0 and "--overwrite measures it again" in capsys.readouterr().out


def test_a_capture_is_tried_before_anyone_waits_for_the_device(device, tmp_path):
    assert run(_spec(tmp_path, liger_kernel=_waits), ["--compile-first", "--out", str(tmp_path / "all.csv")]) == 0
    assert len(device) == 1 and "--no-replay" in device[0]


def test_benchmarks_that_wait_for_the_device_take_turns_at_each_size(device, tmp_path, monkeypatch):
    turns, lock = [], harness.device_lock
    monkeypatch.setattr(harness, "device_lock", lambda shared=False: turns.append(shared) or lock())
    assert run(_spec(tmp_path), ["--compile-first", "--modes", "full", "--out", str(tmp_path / "all.csv")]) == 0
    # Compiled beside others; the bandwidth and two sizes alone.
    assert turns == [True, False, False, False]


def test_a_kernel_against_itself_waits_for_the_device_like_the_others(device, tmp_path, capsys):
    out = tmp_path / "all.csv"
    assert run(_spec(tmp_path), ["--noise", "--compile-first", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "product is compiled, and waits for the device" in printed and "product against itself: 12 same" in printed
    kept = read_samples(path_beside(out, "product", noise=True))
    assert {one.provider for one in kept} == {"liger", "liger_again"} and not out.exists()


def test_the_kernel_itself_may_be_the_one_that_can_t_be_captured(device, tmp_path):
    spec, out = _spec(tmp_path, liger=_waits), tmp_path / "all.csv"
    assert run(spec, ["--out", str(out)]) == 0
    assert run(spec, device[0][2:]) == 0 and len(device) == 1
    assert _times(out, "liger") == {"speed", "kernel_time"} and _times(out, "torch") == {"speed", "device_time"}


def test_where_the_profiler_may_not_look_there_is_no_device_time(device, tmp_path, monkeypatch, capsys):
    def blind(one):
        raise RuntimeError("the profiler saw no kernels")

    monkeypatch.setattr(measure, "kernel_times", blind)
    spec, out = _spec(tmp_path, liger=_waits), tmp_path / "all.csv"
    assert run(spec, ["--out", str(out), "--no-replay", "liger"]) == 0
    assert _times(out, "liger") == {"speed"} and _times(out, "torch") == {"speed", "device_time"}
    assert "liger has no device time (kernel_time, H=4): the profiler saw no kernels" in capsys.readouterr().out


def test_a_baseline_that_breaks_the_device_is_left_out_at_that_size_alone(device, tmp_path, monkeypatch, capsys):
    spec, out = _spec(tmp_path, liger_kernel=_breaks), tmp_path / "all.csv"
    monkeypatch.setattr(measure, "is_fit", lambda: False)
    assert run(spec, ["--out", str(out)]) == 0
    assert device[0][-2:] == ["--without", "liger_kernel@4=an illegal memory access was encountered"]
    assert run(spec, device[0][2:]) == 0
    assert device[1][-1].startswith("liger_kernel@8=") and {row.x_value for row in read(out)} == {4}
    assert run(spec, device[1][2:]) == 0 and len(device) == 2
    assert {row.x_value for row in read(out)} == {4, 8} and _times(out, "liger_kernel") == set()
    assert "liger_kernel is left out (measuring, H=8): an illegal memory access" in capsys.readouterr().out


def test_a_call_is_as_long_as_its_kernels_and_overlapping_ones_count_once():
    calls = [(0.0, 100.0), (200.0, 300.0), (400.0, 500.0)]
    kernels = [(10.0, 20.0), (15.0, 30.0), (40.0, 50.0), (120.0, 180.0), (210.0, 290.0), (220.0, 230.0)]
    assert busy_ms(calls, kernels) == pytest.approx([0.03, 0.08, 0.0])


class _GradientBesideForward(torch.autograd.Function):
    """A loss whose forward makes the gradient and keeps it on the node, as generated losses do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.dx = 2 * x
        return x.square().sum()

    @staticmethod
    def backward(ctx, dloss):
        return ctx.dx


def test_a_gradient_that_the_node_keeps_was_made_by_forward():
    moved = bytes_moved(_GradientBesideForward.apply, (torch.randn(64, requires_grad=True),), ("forward", "full"))
    assert moved == {"full": 2 * 64 * 4 + 8}


def test_a_kernel_whose_forward_makes_the_gradients_has_a_full_pass_alone(device, tmp_path, capsys):
    spec = replace(
        _spec(tmp_path, liger=_GradientBesideForward.apply, torch=lambda x: x.square().sum()),
        make_inputs=lambda H, dtype, device: (torch.randn(H, requires_grad=True),),
    )
    out = tmp_path / "all.csv"
    assert run(spec, ["--out", str(out)]) == 0
    assert {row.kernel_operation_mode for row in read(out) if row.kernel_provider == "liger"} == {"full"}
    assert {row.kernel_operation_mode for row in read(out) if row.kernel_provider == "torch"} > {"forward", "full"}
    assert "liger has its gradients from forward, so that its full pass alone is measured" in capsys.readouterr().out
    assert run(spec, ["--out", str(out)]) == 0 and "--overwrite measures it again" in capsys.readouterr().out
