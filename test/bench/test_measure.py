"""Passes, bytes, limits and turns on the CPU; timing, capture, memory and a whole sweep on a GPU."""

import json
import os
import random
import subprocess
import sys

from pathlib import Path
from statistics import median

import pytest
import torch

from liger_dev.bench.arguments import parse_options
from liger_dev.bench.csv import key
from liger_dev.bench.csv import read
from liger_dev.bench.harness import BenchmarkSpec
from liger_dev.bench.harness import run
from liger_dev.bench.harness import to_rows
from liger_dev.bench.kernel_time import kernel_times
from liger_dev.bench.limits import bytes_moved
from liger_dev.bench.limits import copy_bandwidth
from liger_dev.bench.limits import count_bytes
from liger_dev.bench.limits import fewest
from liger_dev.bench.memory import peak_megabytes
from liger_dev.bench.memory import split_by_fit
from liger_dev.bench.passes import MODES
from liger_dev.bench.passes import eager_pass
from liger_dev.bench.roofline import ImpossibleFigure
from liger_dev.bench.roofline import check_share
from liger_dev.bench.roofline import share
from liger_dev.bench.samples import path_beside
from liger_dev.bench.samples import read as read_samples
from liger_dev.bench.spec import Series
from liger_dev.bench.spec import make_inputs
from liger_dev.bench.sweeps import chosen_sweep
from liger_dev.bench.timing import graph_pass
from liger_dev.bench.timing import interleave
from liger_dev.bench.timing import time_interleaved
from liger_dev.errors import BadInput


class _Twice(torch.autograd.Function):
    """y = 2 * x * w: saves both, returns both gradients; the smallest op with a weight."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return 2 * x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return 2 * dy * w, (2 * dy * x).sum(0)


def _twice(x, w):
    return _Twice.apply(x, w)


def _make_inputs(M, H, dtype, device):
    x = torch.randn(M, H, dtype=dtype, device=device, requires_grad=True)
    w = torch.randn(H, dtype=dtype, device=device, requires_grad=True)
    return x, w


def _spec(folder, **changes):
    stated = dict(
        kernel_name="twice",
        make_inputs=_make_inputs,
        providers={"liger": _twice, "torch": lambda x, w: 2 * x * w},
        x_name="H",
        x_label="hidden size",
        x_values=(1024, 4096),
        config={"M": 4096, "dtype": "bfloat16"},
        script=str(folder / "benchmark" / "scripts" / "benchmark_twice.py"),
    )
    return BenchmarkSpec(**{**stated, **changes})


@pytest.mark.parametrize("mode", MODES)
def test_a_pass_repeats_and_leaves_the_gradients_of_one_call(mode):
    x, w = _make_inputs(3, 5, torch.float32, "cpu")
    one = eager_pass(_twice, (x, w), mode)
    for _ in range(3):
        one.prepare()
        assert x.grad is None and w.grad is None
        one.call()
    assert (x.grad is not None) == (mode != "forward")
    if mode != "forward":
        grad_output = x.grad / (2 * w)
        torch.testing.assert_close(w.grad, (2 * grad_output * x).sum(0))


def test_a_backward_is_not_timed_with_its_forward():
    calls = []

    def counted(x, w):
        calls.append("forward")
        return _twice(x, w)

    one = eager_pass(counted, _make_inputs(3, 5, torch.float32, "cpu"), "backward")
    one.prepare()
    assert calls == ["forward"]
    one.call()
    assert calls == ["forward"]


def test_several_outputs_and_a_scalar_have_a_backward():
    x = torch.randn(4, requires_grad=True)
    one = eager_pass(lambda x: (x * 2, x.detach(), x.sum()), (x,), "full")
    one.prepare()
    one.call()
    assert x.grad is not None


def test_nothing_to_differentiate_is_said():
    with pytest.raises(BadInput, match="no backward"):
        eager_pass(lambda x: x + 1, (torch.ones(3),), "full")


def test_bytes_are_what_each_pass_reads_and_writes_once():
    x, w = _make_inputs(64, 32, torch.bfloat16, "cpu")
    n, h = 64 * 32 * 2, 32 * 2
    moved = bytes_moved(_twice, (x, w), MODES)
    # forward: x, w -> y; backward: dy, x, w -> dx, dw; full: x, w, y, dy, dx, dw
    assert moved == {"forward": 2 * n + h, "backward": 3 * n + 2 * h, "full": 4 * n + 2 * h}
    assert bytes_moved(_twice, (x, w), ["forward"]) == {"forward": 2 * n + h}


class _GradientInForward(torch.autograd.Function):
    """A loss whose forward writes the gradient over its input, as liger-kernel's cross entropy does."""

    @staticmethod
    def forward(ctx, x):
        loss = x.square().sum()
        x.detach().mul_(2)
        ctx.save_for_backward(x.detach())
        return loss

    @staticmethod
    def backward(ctx, dloss):
        return ctx.saved_tensors[0]


class _InPlace(torch.autograd.Function):
    """y = 2 * x, whose backward overwrites the gradient that it is given, as liger-kernel's norms do."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return dy.mul_(2)


def test_a_gradient_from_forward_leaves_the_full_pass_alone():
    x = torch.randn(64, requires_grad=True)
    moved = bytes_moved(_GradientInForward.apply, (x,), MODES)
    assert moved == {"full": 2 * 64 * 4 + 8}


def test_a_gradient_written_in_place_is_read_and_written_and_one_that_is_passed_on_neither():
    x = torch.randn(64, requires_grad=True)
    assert bytes_moved(_InPlace.apply, (x,), MODES)["backward"] == 2 * 64 * 4
    y = torch.randn(64, requires_grad=True)
    assert bytes_moved(torch.add, (x, y), ["backward"]) == {"backward": 64 * 4}


def test_every_pass_meets_new_values_at_the_same_addresses():
    x, w = _make_inputs(3, 5, torch.float32, "cpu")
    seen = []
    one = eager_pass(lambda x, w: seen.append((x.data_ptr(), x.detach().clone())) or x * w, (x, w), "forward")
    for _ in range(3):
        one.prepare()
        one.call()
    (first, before), *others = seen
    assert all(place == first and not torch.equal(values, before) for place, values in others)
    assert all(torch.equal(values.flatten().sort().values, before.flatten().sort().values) for _, values in others)


def test_shared_storage_counts_once_and_expanded_tensors_as_they_are():
    x = torch.zeros(8, 4)
    assert count_bytes([x, x.view(4, 8), x[:2]]) == 128
    assert count_bytes([torch.zeros(1, 4).expand(100, 4)]) == 16
    assert fewest([{"forward": 5, "backward": 9}, {"forward": 7, "backward": 8}]) == {"forward": 5, "backward": 8}


def test_a_share_above_one_is_an_error_of_the_kernel():
    assert share(4_000_000, 0.002, 4e12) == pytest.approx(0.5)
    check_share(4_000_000, 0.002, 4e12, "here")
    with pytest.raises(ImpossibleFigure) as raised:
        check_share(4_000_000, 0.0009, 4e12, "liger, forward, H=4096")
    assert raised.value.exit_code == 1 and "liger, forward, H=4096" in str(raised.value)


def test_turns_are_random_and_everyone_gets_as_many():
    order = []
    samplers = {name: lambda name=name: order.append(name) or float(len(order)) for name in "abc"}
    samples = interleave(samplers, random.Random(0), at_least=20, at_most=30, budget_s=0.0)
    assert {name: len(values) for name, values in samples.items()} == {"a": 20, "b": 20, "c": 20}
    rounds = [tuple(order[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds) and len(set(rounds)) > 3
    assert len(interleave(samplers, random.Random(0), 20, 30, budget_s=60.0)["a"]) == 30


def test_a_sweep_is_bounded_by_memory():
    peaks = {"liger": 50.0, "torch": 150.0}
    assert split_by_fit({1024: 1, 2048: 2, 4096: 4}, peaks, 700.0) == ((1024, 2048), (4096,))
    assert split_by_fit({"llama_3_8b": 1}, peaks, 10.0) == ((), ("llama_3_8b",))


def test_inputs_are_the_same_each_time_and_a_missing_size_is_named(tmp_path):
    spec = _spec(tmp_path)
    first, again = (make_inputs(spec, {"M": 4096, "H": 16}, "float16", "cpu") for _ in range(2))
    assert first[0].shape == (4096, 16) and first[0].dtype == torch.float16
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    with pytest.raises(BadInput, match="'M'"):
        make_inputs(spec, {"H": 16}, "float16", "cpu")


def test_options_and_their_defaults(tmp_path, monkeypatch):
    monkeypatch.delenv("LIGER_BENCH_TARGET", raising=False)
    spec = _spec(tmp_path)
    default = parse_options(spec, [])
    assert (default.modes, default.dtype, default.overwrite) == (MODES, "bfloat16", False)
    assert default.out == tmp_path.resolve() / "benchmark" / "data" / "all_benchmark_data.csv"
    given = parse_options(
        spec, ["--modes", "full", "forward", "--metrics", "memory", "--dtype", "float32", "--out", "a.csv"]
    )
    assert (given.modes, given.metrics, given.dtype) == (("forward", "full"), ("memory",), "float32")
    assert given.out == Path("a.csv")
    with pytest.raises(SystemExit, match="2"):
        parse_options(spec, ["--modes", "sideways"])
    monkeypatch.setenv("LIGER_BENCH_TARGET", "probe")
    assert parse_options(spec, []).out.name == "all_benchmark_data_probe.csv"


def test_rows_state_the_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGER_BENCH_PROVIDER_TAG", "liger_probe")
    series = [Series(name, "full", "speed", (3.0, 1.0, 2.0)) for name in ("liger", "torch")]
    spec = _spec(tmp_path)
    sweep = chosen_sweep(spec.x_name, spec.x_label, spec.x_values, spec.config)
    tagged, plain = to_rows(spec, sweep, "float16", 1024, series, "a GPU")
    assert (tagged.kernel_provider, plain.kernel_provider) == ("liger_probe", "torch")
    assert (plain.y_value_50, plain.y_value_20, plain.y_value_80) == (2.0, 1.4, 2.6)
    assert json.loads(plain.extra_benchmark_config_str) == {"M": 4096, "dtype": "float16"}
    assert (plain.metric_unit, plain.x_value, plain.gpu_name) == ("ms", 1024, "a GPU")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_measured(tmp_path, capsys):
    assert run(_spec(tmp_path), []) == 2
    assert capsys.readouterr().err == "Benchmarks need a CUDA device and none is visible: nothing was measured.\n"
    assert not (tmp_path / "benchmark").exists()


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_replays_do_the_work_and_take_no_longer_than_calls(mode):
    builders = {"call": eager_pass, "replay": graph_pass}
    passes = {
        name: build(_twice, _make_inputs(4096, 4096, torch.bfloat16, "cuda"), mode) for name, build in builders.items()
    }
    samples = time_interleaved(passes)
    medians = {name: sorted(values)[len(values) // 2] for name, values in samples.items()}
    assert min(len(values) for values in samples.values()) >= 20
    # 33.5 MB an array, at least two arrays: no device moves them in 10 us.
    assert 0.01 < medians["replay"] <= 1.1 * medians["call"]


@pytest.mark.gpu
def test_measured_time_is_within_the_device_s_limits():
    inputs = _make_inputs(8192, 8192, torch.bfloat16, "cuda")
    samples = time_interleaved({"copy": graph_pass(lambda x, w: x * 1, inputs, "forward")})["copy"]
    size = count_bytes([inputs[0]]) * 2
    assert 0.5 < share(size, median(samples), copy_bandwidth()) <= 1.0


@pytest.mark.gpu
def test_peak_memory_is_inputs_outputs_and_gradients():
    megabytes = 4096 * 4096 * 2 / 2**20
    peaks = {
        mode: peak_megabytes(
            lambda: eager_pass(lambda x, w: x.exp(), _make_inputs(4096, 4096, torch.bfloat16, "cuda"), mode)
        )[0]
        for mode in MODES
    }
    # forward: x and y. full: x, y, dy and dx; w is a row.
    assert 2 * megabytes < peaks["forward"] < 2.1 * megabytes
    assert 4 * megabytes < peaks["full"] < 4.1 * megabytes


@pytest.mark.gpu
def test_a_sweep_writes_every_row_once(tmp_path, capsys):
    spec = _spec(tmp_path)
    out = tmp_path / "all.csv"
    assert run(spec, ["--out", str(out)]) == 0
    rows = read(out)
    times = [row for row in rows if row.metric_name in ("speed", "device_time", "memory")]
    shares = [row for row in rows if row.metric_name == "bandwidth_share"]
    assert len(times) == 2 * 2 * 3 * 3 and len(shares) == 2 * 2 * 3
    assert all(row.y_value_20 <= row.y_value_50 <= row.y_value_80 and row.y_value_50 > 0 for row in rows)
    assert all(row.y_value_50 <= 1 for row in shares)
    kept = read_samples(path_beside(out, "twice"))
    assert {one.key for one in kept} == {key(row) for row in rows}
    assert all(len(one.samples) >= (3 if one.metric == "memory" else 20) for one in kept)
    assert all("MHz" in one.under.before["clocks.sm"] and int(one.under.after["temperature.gpu"]) > 0 for one in kept)
    assert "liger takes" in capsys.readouterr().out
    assert run(spec, ["--out", str(out)]) == 0
    assert "--overwrite measures it again" in capsys.readouterr().out and read(out) == rows


def _first_row_only(x, w):
    y = torch.empty_like(x)
    y[0] = 2 * x[0] * w
    return y


@pytest.mark.gpu
def test_a_kernel_that_does_not_do_its_work_is_flagged(tmp_path, capsys):
    providers = {"liger": _first_row_only, "torch": lambda x, w: 2 * x * w}
    spec = _spec(tmp_path, providers=providers, x_values=(16384, 32768))
    argv = ["--modes", "forward", "--metrics", "device_time", "--out", str(tmp_path / "all.csv")]
    assert run(spec, argv) == 1
    assert "can't be" in capsys.readouterr().err
    assert read(tmp_path / "all.csv") == ()


def _thrice(x, w):
    return _Twice.apply(x, w) + _Twice.apply(x, w) + _Twice.apply(x, w) - 2 * _Twice.apply(x, w)


@pytest.mark.gpu
def test_a_deliberately_slow_kernel_is_slower_and_catastrophic(tmp_path, capsys):
    spec = _spec(tmp_path, providers={"liger": _thrice, "torch": _twice}, x_values=(16384,))
    argv = ["--modes", "forward", "--metrics", "speed", "device_time", "--out", str(tmp_path / "all.csv")]
    assert run(spec, argv) == 0
    printed = capsys.readouterr().out
    assert printed.count(": slower") == 2 and "CATASTROPHIC: speed, forward, H = 16384:" in printed


@pytest.mark.gpu
def test_the_kernel_against_itself_is_the_same(tmp_path, capsys):
    spec = _spec(tmp_path, x_values=(16384,), config={"M": 8192, "dtype": "bfloat16"})
    assert run(spec, ["--noise", "--metrics", "device_time", "--out", str(tmp_path / "all.csv")]) == 0
    assert "twice against itself: 3 same" in capsys.readouterr().out
    assert not (tmp_path / "all.csv").exists()
    kept = read_samples(path_beside(tmp_path / "all.csv", "twice", noise=True))
    assert {one.provider for one in kept} == {"liger", "liger_again"}


WAITING = """
import sys
import torch
from liger_dev.bench.harness import BenchmarkSpec
from liger_dev.bench.harness import run

def make_inputs(M, H, dtype, device):
    return torch.randn(M, H, dtype=dtype, device=device, requires_grad=True), torch.randn(H, dtype=dtype, device=device)

providers = {"liger": lambda x, w: 2 * x * w, "torch": lambda x, w: 2 * x * w * float(w[0].item() > -1e9)}
fixed = {"M": 4096, "dtype": "bfloat16"}
SPEC = BenchmarkSpec("twice", make_inputs, providers, "H", "hidden size", (4096,), fixed, __file__)
sys.exit(run(SPEC, sys.argv[1:]))
"""


@pytest.mark.gpu
def test_a_pass_that_waits_for_the_device_is_timed_by_its_kernels_in_a_new_process(tmp_path):
    script = tmp_path / "benchmark/scripts/benchmark_twice.py"
    script.parent.mkdir(parents=True)
    script.write_text(WAITING)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, str(script), "--budget", "0.2"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "going on in a new process" in done.stdout and "torch can't be replayed (measuring, H=4096)" in done.stdout
    rows = [row for row in read(tmp_path / "benchmark/data/all_benchmark_data.csv") if row.metric_unit == "ms"]
    medians = {(row.kernel_provider, row.kernel_operation_mode, row.metric_name): row.y_value_50 for row in rows}
    for mode in MODES:
        # torch launches the same kernels and a product more, each of 33.5 MB in and out at the least.
        assert medians["liger", mode, "device_time"] < medians["torch", mode, "kernel_time"] < 1.0
    assert ("torch", "full", "device_time") not in medians and ("liger", "full", "kernel_time") not in medians


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_kernels_one_by_one_take_what_their_replay_takes(mode):
    replayed = graph_pass(_twice, _make_inputs(8192, 8192, torch.bfloat16, "cuda"), mode)
    replay = median(time_interleaved({"replay": replayed})["replay"])
    alone = median(kernel_times(eager_pass(_twice, _make_inputs(8192, 8192, torch.bfloat16, "cuda"), mode)))
    assert 0.85 * replay < alone < 1.05 * replay


def _fails(x, w):
    raise RuntimeError("no such instruction\nand more")


@pytest.mark.gpu
def test_a_baseline_that_fails_is_left_out_and_a_kernel_that_fails_is_an_error(tmp_path, capsys):
    argv = ["--modes", "forward", "--out", str(tmp_path / "all.csv")]
    assert run(_spec(tmp_path, providers={"liger": _twice, "torch": _fails}), argv) == 0
    assert capsys.readouterr().out.count("torch fails and is left out (checking, H=") == 2
    assert {row.kernel_provider for row in read(tmp_path / "all.csv")} == {"liger"}
    assert run(_spec(tmp_path, providers={"liger": _fails, "torch": _twice}), [*argv, "--overwrite"]) == 1
    assert "the kernel fails: no such instruction" in capsys.readouterr().err
