"""What a benchmark script calls: its spec and its command line in, CSV rows and an exit code out."""

import gc
import json
import os
import sys
import time

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version
from pathlib import Path

import torch

from liger_dev import __version__
from liger_dev import measured
from liger_dev.bench import samples as sampled
from liger_dev.bench.arguments import Options
from liger_dev.bench.arguments import parse_options
from liger_dev.bench.csv import DEVICE_TIMES
from liger_dev.bench.csv import Key
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import append
from liger_dev.bench.csv import key
from liger_dev.bench.csv import read
from liger_dev.bench.csv import tagged
from liger_dev.bench.device import device_lock
from liger_dev.bench.device import device_state
from liger_dev.bench.limits import copy_bandwidth
from liger_dev.bench.measure import compile_at
from liger_dev.bench.measure import fitting
from liger_dev.bench.measure import measure_at
from liger_dev.bench.passes import MODES
from liger_dev.bench.samples import Circumstances
from liger_dev.bench.spec import CANDIDATE
from liger_dev.bench.spec import REFERENCE
from liger_dev.bench.spec import UNITS
from liger_dev.bench.spec import BenchmarkSpec
from liger_dev.bench.spec import Series
from liger_dev.bench.spec import Setting
from liger_dev.bench.spec import Spoiled
from liger_dev.bench.statistics import Comparison
from liger_dev.bench.statistics import compare_with_fastest
from liger_dev.bench.statistics import quantiles
from liger_dev.bench.sweeps import Sweep
from liger_dev.bench.sweeps import chosen_sweep
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import PASSED
from liger_dev.errors import LigerDevError

__all__ = ["BenchmarkSpec", "run"]

AGAIN = "liger_again"


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
    except Spoiled as spoiled:
        _say(f"{spoiled}; going on in a new process, {spoiled.option.removeprefix('--').replace('-', ' ')} of it")
        return go_on([sys.executable, spec.script, *argv, spoiled.option, f"{spoiled.what}={spoiled.reason}"])


def go_on(command: Sequence[str]) -> int:
    """Becomes a new process, so that nothing of this one, its memory on the device included, is left."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], list(command))


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
    setting = _setting(spec, wanted, options, options.metrics)
    if options.compile_first:
        _compile(setting)
    return _measure_points(setting, options, gpu)


def _compile(setting: Setting) -> None:
    with device_lock(shared=True):
        for x in setting.sweep.points:
            # What does not fit beside others may fit alone.
            with suppress(torch.OutOfMemoryError):
                compile_at(setting, x)
    _say(f"{setting.spec.kernel_name} is compiled, and waits for the device")


def _measure_points(setting: Setting, options: Options, gpu: str) -> int:
    spec, sweep = setting.spec, setting.sweep
    # Imported modules are a million objects, which every collection between two measurements would visit again.
    gc.freeze()
    with device_lock():
        setting = replace(setting, bandwidth=copy_bandwidth())
        # What was compiled has run once already.
        fit, left_out = (tuple(sweep.points), ()) if options.compile_first else fitting(setting)
    _say(f"{spec.kernel_name} on {gpu}, {options.dtype}, copy bandwidth {setting.bandwidth / 1e12:.2f} TB/s")
    for x in left_out:
        print(f"{sweep.x_name}={x}: left out, it would not fit into the device's memory")
    for x in fit:
        try:
            series, under = _alone_at(setting, x)
        except torch.OutOfMemoryError:
            print(f"{sweep.x_name}={x}: left out, the device ran out of memory")
            continue
        rows = to_rows(spec, sweep, options.dtype, x, series, gpu)
        kept = sampled.path_beside(options.out, spec.kernel_name)
        sampled.keep(kept, rows, [one.samples for one in series], under)
        append(options.out, rows, options.overwrite)
        _print_point(sweep, x, series)
        for flag in measured.flags(rows, measured.pairs(rows)):
            _say(f"CATASTROPHIC: {flag.text}")
    return PASSED


def _alone_at(setting: Setting, x: int | str) -> tuple[list[Series], Circumstances]:
    """The series at one x, while nobody else measures. Benchmarks that wait for the device take turns, an x each."""
    with device_lock():
        before = device_state()
        series = measure_at(setting, x)
        under = Circumstances(
            _versions(), before, device_state(), _op_digest(setting.spec), no_replay=dict(setting.no_replay)
        )
    return series, under


def _setting(spec: BenchmarkSpec, sweep: Sweep, options: Options, metrics: tuple[str, ...]) -> Setting:
    taken = (spec, sweep, options.dtype, options.modes, metrics, 0.0, options.budget_s, _say)
    return Setting(*taken, options.no_replay, options.without)


def _noise(spec: BenchmarkSpec, sweep: Sweep, options: Options) -> int:
    """The kernel against itself: what the harness can tell apart. The samples are kept, the CSV gets no row."""
    providers = {CANDIDATE: spec.providers[CANDIDATE], AGAIN: spec.providers[CANDIDATE]}
    twice = replace(spec, providers=providers)
    metrics = tuple(metric for metric in options.metrics if metric != "memory")
    verdicts = []
    setting = _setting(twice, sweep, options, metrics)
    if options.compile_first:
        _compile(setting)
    with device_lock():
        setting = replace(setting, bandwidth=copy_bandwidth())
    for x in sweep.points:
        measured_at, under = _alone_at(setting, x)
        series = [one for one in measured_at if one.metric in metrics]
        rows = to_rows(twice, sweep, options.dtype, x, series, torch.cuda.get_device_name())
        kept = sampled.path_beside(options.out, spec.kernel_name, noise=True)
        sampled.keep(kept, rows, [one.samples for one in series], under)
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
    """Whether the kernel's own rows are there, and the reference's of passes that the kernel does not have.

    Another baseline may have been left out for a reason that lasts.
    """

    def there(provider: str, mode: str, metric: str) -> bool:
        names = DEVICE_TIMES if metric == "device_time" else (metric,)
        series = [Series(provider, mode, name, (0.0,)) for name in names]
        return any(key(row) in present for row in to_rows(spec, sweep, options.dtype, x, series, gpu))

    wanted = [(mode, metric) for mode in options.modes for metric in options.metrics]
    return any(there(CANDIDATE, *one) for one in wanted) and all(
        there(CANDIDATE, *one) or there(REFERENCE, *one) for one in wanted
    )


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
            names = DEVICE_TIMES if metric == "device_time" else (metric,)
            samples = {one.provider: one.samples for one in series if one.mode == mode and one.metric in names}
            comparison = compare_with_fastest(CANDIDATE, samples, metric)
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
