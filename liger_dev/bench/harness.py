"""What a benchmark script calls: its spec and its command line in, CSV rows and an exit code out."""

import argparse
import gc
import json
import os
import sys
import time

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version
from pathlib import Path

import torch

from liger_dev import __version__
from liger_dev import measured
from liger_dev.bench import samples as sampled
from liger_dev.bench.csv import Key
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import append
from liger_dev.bench.csv import key
from liger_dev.bench.csv import read
from liger_dev.bench.csv import tagged
from liger_dev.bench.csv import target
from liger_dev.bench.device import device_lock
from liger_dev.bench.device import device_state
from liger_dev.bench.limits import copy_bandwidth
from liger_dev.bench.measure import CANDIDATE
from liger_dev.bench.measure import METRICS
from liger_dev.bench.measure import UNITS
from liger_dev.bench.measure import BenchmarkSpec
from liger_dev.bench.measure import Series
from liger_dev.bench.measure import Setting
from liger_dev.bench.measure import compile_at
from liger_dev.bench.measure import fitting
from liger_dev.bench.measure import measure_at
from liger_dev.bench.models import MODELS
from liger_dev.bench.passes import MODES
from liger_dev.bench.statistics import Comparison
from liger_dev.bench.statistics import compare_with_fastest
from liger_dev.bench.statistics import quantiles
from liger_dev.bench.sweeps import DEFAULT_TOKENS
from liger_dev.bench.sweeps import SWEEP_MODES
from liger_dev.bench.sweeps import Sweep
from liger_dev.bench.sweeps import chosen_sweep
from liger_dev.bench.timing import BUDGET_S
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import PASSED
from liger_dev.errors import LigerDevError

__all__ = ["BenchmarkSpec", "run"]

AGAIN = "liger_again"


@dataclass(frozen=True)
class Options:
    """A benchmark script's command line. `x_values` are empty unless the user gave some."""

    overwrite: bool
    modes: tuple[str, ...]
    metrics: tuple[str, ...]
    dtype: str
    out: Path
    sweep_mode: str
    models: tuple[str, ...]
    tokens: int
    x_values: tuple[int, ...]
    budget_s: float
    compile_first: bool
    noise: bool


def run(spec: BenchmarkSpec, argv: Sequence[str]) -> int:
    """Measures every provider of `spec` and appends the rows to the CSV file, x by x, so that a stop loses one x.

    Returns:
        0; 1 if a figure is impossible or the kernel does not run; 2 without a CUDA device or for bad input.
    """
    options = parse_options(spec, argv)
    if not torch.cuda.is_available():
        print("Benchmarks need a CUDA device and none is visible: nothing was measured.", file=sys.stderr)
        return BAD_INPUT
    try:
        sweep = _sweep_of(spec, options)
        return _noise(spec, sweep, options) if options.noise else _measure(spec, sweep, options)
    except LigerDevError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def parse_options(spec: BenchmarkSpec, argv: Sequence[str]) -> Options:
    """The command line's options; modes and metrics in their usual order, however they were typed."""
    parser = argparse.ArgumentParser(description=f"Speed and memory of {spec.kernel_name} against its baselines.")
    parser.add_argument("--overwrite", action="store_true", help="measure rows again that the CSV file has")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default=spec.config.get("dtype"))
    parser.add_argument("--out", type=Path, help="the CSV file (default: benchmark/data, see LIGER_BENCH_TARGET)")
    parser.add_argument("--sweep-mode", choices=SWEEP_MODES, default="size", help="what varies (default: size)")
    parser.add_argument("--model", nargs="+", choices=tuple(MODELS), default=(), help="whose sizes to take")
    parser.add_argument("--bt", type=int, default=DEFAULT_TOKENS, help="tokens in a sweep over models (default: 4096)")
    parser.add_argument("--x", type=int, nargs="+", default=(), help="the sizes to measure instead of the script's own")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for more than twenty samples")
    parser.add_argument("--compile-first", action="store_true", help="compile all sizes, which runs beside other such")
    parser.add_argument("--noise", action="store_true", help="measure the kernel against itself: what is no difference")
    given = parser.parse_args(argv)
    data = Path(spec.script).resolve().parents[1] / "data"
    return Options(
        overwrite=given.overwrite,
        modes=tuple(mode for mode in MODES if mode in given.modes),
        metrics=tuple(metric for metric in METRICS if metric in given.metrics),
        dtype=given.dtype or "bfloat16",
        out=given.out or target(data, os.environ),
        sweep_mode=given.sweep_mode,
        models=tuple(given.model),
        tokens=given.bt,
        x_values=tuple(given.x),
        budget_s=given.budget,
        compile_first=given.compile_first,
        noise=given.noise,
    )


def _sweep_of(spec: BenchmarkSpec, options: Options) -> Sweep:
    x_values = options.x_values or (spec.x_values if options.sweep_mode == "size" else ())
    chosen = (options.sweep_mode, options.models, options.tokens)
    return chosen_sweep(spec.x_name, spec.x_label, x_values, spec.config, *chosen)


def _measure(spec: BenchmarkSpec, sweep: Sweep, options: Options) -> int:
    gpu = torch.cuda.get_device_name()
    present = {key(row) for row in read(options.out)}
    names = tuple(name for name, function in spec.providers.items() if function is not None)
    for name in (name for name in spec.providers if name not in names):
        print(f"{name} is left out: it is not installed")
    skipped = [x for x in sweep.points if not options.overwrite and _is_present(spec, sweep, options, x, gpu, present)]
    for x in skipped:
        print(f"{sweep.x_name}={x}: is in {options.out}; --overwrite measures it again")
    wanted = replace(sweep, points={x: sizes for x, sizes in sweep.points.items() if x not in skipped})
    if not wanted.points:
        return PASSED
    setting = Setting(spec, wanted, options.dtype, options.modes, options.metrics, 0.0, options.budget_s, _say)
    if options.compile_first:
        with device_lock(shared=True):
            for x in wanted.points:
                # What does not fit beside others may fit alone.
                with suppress(torch.OutOfMemoryError):
                    compile_at(setting, x)
    with device_lock():
        setting = replace(setting, bandwidth=copy_bandwidth())
        _say(f"{spec.kernel_name} on {gpu}, {options.dtype}, copy bandwidth {setting.bandwidth / 1e12:.2f} TB/s")
        return _measure_points(setting, options, gpu)


def _measure_points(setting: Setting, options: Options, gpu: str) -> int:
    spec, sweep = setting.spec, setting.sweep
    # Imported modules are a million objects, which every collection between two measurements would visit again.
    gc.freeze()
    fit, left_out = fitting(setting)
    for x in left_out:
        print(f"{sweep.x_name}={x}: left out, it would not fit into the device's memory")
    for x in fit:
        before = device_state()
        try:
            series = measure_at(setting, x)
        except torch.OutOfMemoryError:
            print(f"{sweep.x_name}={x}: left out, the device ran out of memory")
            continue
        rows = to_rows(spec, sweep, options.dtype, x, series, gpu)
        kept = sampled.path_beside(options.out, spec.kernel_name)
        values = [one.samples for one in series]
        sampled.keep(kept, rows, values, _versions(), before, device_state(), _op_digest(spec))
        append(options.out, rows, options.overwrite)
        _print_point(sweep, x, series)
        for flag in measured.flags(rows, measured.pairs(rows)):
            _say(f"CATASTROPHIC: {flag.text}")
    return PASSED


def _noise(spec: BenchmarkSpec, sweep: Sweep, options: Options) -> int:
    """The kernel against itself: what the harness can tell apart. The samples are kept, the CSV gets no row."""
    providers = {CANDIDATE: spec.providers[CANDIDATE], AGAIN: spec.providers[CANDIDATE]}
    twice = replace(spec, providers=providers)
    metrics = tuple(metric for metric in options.metrics if metric != "memory")
    verdicts = []
    with device_lock():
        setting = Setting(twice, sweep, options.dtype, options.modes, metrics, copy_bandwidth(), options.budget_s, _say)
        for x in sweep.points:
            before = device_state()
            series = [one for one in measure_at(setting, x) if one.metric in metrics]
            rows = to_rows(twice, sweep, options.dtype, x, series, torch.cuda.get_device_name())
            kept = sampled.path_beside(options.out, spec.kernel_name, noise=True)
            values = [one.samples for one in series]
            sampled.keep(kept, rows, values, _versions(), before, device_state(), _op_digest(spec))
            verdicts += [found.verdict for found in _print_point(sweep, x, series)]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
    _say(f"{spec.kernel_name} against itself: {counts}")
    return KERNEL_FAILED if {"faster", "slower"} & set(verdicts) else PASSED


def _say(text: str) -> None:
    print(text, flush=True)


def _versions() -> dict[str, str]:
    found = {"cuda": torch.version.cuda or ""}
    for package in ("torch", "triton", "liger-kernel"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _op_digest(spec: BenchmarkSpec) -> str:
    """That of the op file beside the script's folder; empty if it is elsewhere."""
    op = Path(spec.script).resolve().parents[2] / "kernels" / "ops" / f"{spec.kernel_name}.py"
    return sampled.op_digest(op.read_text(encoding="utf-8")) if op.is_file() else ""


def _is_present(spec: BenchmarkSpec, sweep: Sweep, options: Options, x: int | str, gpu: str, present: set[Key]) -> bool:
    """Whether the kernel's own rows are there: a baseline may have been left out for a reason that lasts."""
    series = [Series(CANDIDATE, mode, metric, (0.0,)) for mode in options.modes for metric in options.metrics]
    return all(key(row) in present for row in to_rows(spec, sweep, options.dtype, x, series, gpu))


def to_rows(
    spec: BenchmarkSpec, sweep: Sweep, dtype: str, x: int | str, series: Sequence[Series], gpu: str
) -> list[Measurement]:
    """The CSV rows of the series at one x: quantiles of the samples, the fixed sizes and dtype as JSON."""
    rows = []
    for one in series:
        middle, low, high = quantiles(one.samples)
        rows.append(
            Measurement(
                kernel_name=spec.kernel_name,
                kernel_provider=tagged(one.provider, os.environ),
                kernel_operation_mode=one.mode,
                metric_name=one.metric,
                metric_unit=UNITS[one.metric],
                x_name=sweep.x_name,
                x_label=sweep.x_label,
                x_value=x,
                y_value_50=middle,
                y_value_20=low,
                y_value_80=high,
                extra_benchmark_config_str=json.dumps({**sweep.fixed, "dtype": dtype}),
                gpu_name=gpu,
                timestamp=time.strftime("%Y-%m-%d %H:%M:%S"),
                liger_version=__version__,
            )
        )
    return rows


def _print_point(sweep: Sweep, x: int | str, series: Sequence[Series]) -> list[Comparison]:
    for one in series:
        middle, low, high = quantiles(one.samples)
        scale, unit = (100, "%") if one.metric == "bandwidth_share" else (1, UNITS[one.metric])
        figure = f"{scale * middle:9.4f} {unit:2} ({scale * low:.4f} to {scale * high:.4f}, {len(one.samples)} samples)"
        _say(f"{sweep.x_name}={x:<7} {one.mode:8} {one.metric:15} {one.provider:13} {figure}")
    found = []
    for mode in MODES:
        for metric in ("speed", "device_time"):
            samples = {one.provider: one.samples for one in series if (one.mode, one.metric) == (mode, metric)}
            comparison = compare_with_fastest(CANDIDATE, samples)
            if comparison is not None:
                found.append(comparison)
                _say(f"{sweep.x_name}={x:<7} {mode:8} {metric:15} {in_words(comparison)}")
    return found


def in_words(comparison: Comparison) -> str:
    """A comparison as a line for the screen."""
    return (
        f"{comparison.candidate} takes {comparison.ratio:.3f} ({comparison.low:.3f} to {comparison.high:.3f}) "
        f"of {comparison.baseline}: {comparison.verdict}"
    )
