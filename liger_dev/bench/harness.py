"""What a benchmark script calls: its spec and its command line in, CSV rows and an exit code out."""

import argparse
import json
import os
import sys
import time

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from liger_dev import __version__
from liger_dev.bench.csv import Key
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import append
from liger_dev.bench.csv import key
from liger_dev.bench.csv import read
from liger_dev.bench.csv import tagged
from liger_dev.bench.csv import target
from liger_dev.bench.limits import copy_bandwidth
from liger_dev.bench.measure import CANDIDATE
from liger_dev.bench.measure import METRICS
from liger_dev.bench.measure import UNITS
from liger_dev.bench.measure import BenchmarkSpec
from liger_dev.bench.measure import Series
from liger_dev.bench.measure import fitting
from liger_dev.bench.measure import measure_at
from liger_dev.bench.passes import MODES
from liger_dev.bench.statistics import Comparison
from liger_dev.bench.statistics import compare_with_fastest
from liger_dev.bench.statistics import quantiles
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import PASSED
from liger_dev.errors import LigerDevError

__all__ = ["BenchmarkSpec", "run"]


@dataclass(frozen=True)
class Options:
    """A benchmark script's command line."""

    overwrite: bool
    modes: tuple[str, ...]
    metrics: tuple[str, ...]
    dtype: str
    out: Path
    samples: Path | None


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
        return _sweep(spec, options)
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
    parser.add_argument("--samples", type=Path, help="keep every sample too, as lines of JSON in this file")
    given = parser.parse_args(argv)
    data = Path(spec.script).resolve().parents[1] / "data"
    return Options(
        overwrite=given.overwrite,
        modes=tuple(mode for mode in MODES if mode in given.modes),
        metrics=tuple(metric for metric in METRICS if metric in given.metrics),
        dtype=given.dtype or "bfloat16",
        out=given.out or target(data, os.environ),
        samples=given.samples,
    )


def _sweep(spec: BenchmarkSpec, options: Options) -> int:
    gpu = torch.cuda.get_device_name()
    bandwidth = copy_bandwidth()
    print(f"{spec.kernel_name} on {gpu}, {options.dtype}, copy bandwidth {bandwidth / 1e12:.2f} TB/s")
    present = {key(row) for row in read(options.out)}
    wanted = tuple(x for x in spec.x_values if options.overwrite or not _complete(spec, options, x, gpu, present))
    for x in (x for x in spec.x_values if x not in wanted):
        print(f"{spec.x_name}={x}: is in {options.out}; --overwrite measures it again")
    if not wanted:
        return PASSED
    fit, left_out = fitting(spec, options.dtype, options.modes, print)
    for x in (x for x in wanted if x in left_out):
        print(f"{spec.x_name}={x}: left out, it would not fit into the device's memory")
    for x in (x for x in wanted if x in fit):
        try:
            series = measure_at(spec, x, options.dtype, options.modes, options.metrics, bandwidth, print)
        except torch.OutOfMemoryError:
            print(f"{spec.x_name}={x}: left out, the device ran out of memory")
            continue
        append(options.out, to_rows(spec, options.dtype, x, series, gpu), options.overwrite)
        if options.samples is not None:
            _keep_samples(options.samples, spec, options.dtype, x, series, gpu)
        _print_point(spec, x, series)
    return PASSED


def _complete(spec: BenchmarkSpec, options: Options, x: int, gpu: str, present: set[Key]) -> bool:
    series = [
        Series(name, mode, metric, (0.0,))
        for name in spec.providers
        for mode in options.modes
        for metric in options.metrics
    ]
    return all(key(row) in present for row in to_rows(spec, options.dtype, x, series, gpu))


def to_rows(spec: BenchmarkSpec, dtype: str, x: int, series: Sequence[Series], gpu: str) -> list[Measurement]:
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
                x_name=spec.x_name,
                x_label=spec.x_label,
                x_value=x,
                y_value_50=middle,
                y_value_20=low,
                y_value_80=high,
                extra_benchmark_config_str=json.dumps({**spec.config, "dtype": dtype}),
                gpu_name=gpu,
                timestamp=time.strftime("%Y-%m-%d %H:%M:%S"),
                liger_version=__version__,
            )
        )
    return rows


def _keep_samples(path: Path, spec: BenchmarkSpec, dtype: str, x: int, series: Sequence[Series], gpu: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for row, one in zip(to_rows(spec, dtype, x, series, gpu), series, strict=True):
            data = {"key": key(row), "timestamp": row.timestamp, "torch": torch.__version__, "samples": one.samples}
            file.write(json.dumps(data) + "\n")


def _print_point(spec: BenchmarkSpec, x: int, series: Sequence[Series]) -> None:
    for one in series:
        middle, low, high = quantiles(one.samples)
        scale, unit = (100, "%") if one.metric == "bandwidth_share" else (1, UNITS[one.metric])
        figure = f"{scale * middle:9.4f} {unit:2} ({scale * low:.4f} to {scale * high:.4f}, {len(one.samples)} samples)"
        print(f"{spec.x_name}={x:<7} {one.mode:8} {one.metric:15} {one.provider:13} {figure}", flush=True)
    for mode in MODES:
        for metric in ("speed", "device_time"):
            samples = {one.provider: one.samples for one in series if (one.mode, one.metric) == (mode, metric)}
            comparison = compare_with_fastest(CANDIDATE, samples)
            if comparison is not None:
                print(f"{spec.x_name}={x:<7} {mode:8} {metric:15} {in_words(comparison)}", flush=True)


def in_words(comparison: Comparison) -> str:
    """A comparison as a line for the screen."""
    return (
        f"{comparison.candidate} takes {comparison.ratio:.3f} ({comparison.low:.3f} to {comparison.high:.3f}) "
        f"of {comparison.baseline}: {comparison.verdict}"
    )
