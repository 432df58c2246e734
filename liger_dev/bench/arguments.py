"""A benchmark script's command line in, what it asks for out."""

import argparse
import os

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from liger_dev.bench.csv import target
from liger_dev.bench.models import MODELS
from liger_dev.bench.passes import MODES
from liger_dev.bench.spec import METRICS
from liger_dev.bench.spec import BenchmarkSpec
from liger_dev.bench.sweeps import DEFAULT_TOKENS
from liger_dev.bench.sweeps import SWEEP_MODES
from liger_dev.bench.timing import BUDGET_S


@dataclass(frozen=True)
class Options:
    """A benchmark script's command line. `x_values` are empty unless the user gave some.

    `no_replay` are the providers that no CUDA graph is made of, `without` the providers, each with an x, that are left
    out there; the value is the reason.
    """

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
    no_replay: Mapping[str, str]
    without: Mapping[str, str]


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
    parser.add_argument(
        "--no-replay",
        action="append",
        default=[],
        metavar="PROVIDER",
        help="time its kernels one by one, without a graph",
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="PROVIDER@X", help="leave a provider out at one size"
    )
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
        no_replay=_with_reasons(given.no_replay),
        without=_with_reasons(given.without),
    )


def _with_reasons(values: Sequence[str]) -> dict[str, str]:
    return {name: reason or "as asked" for name, _, reason in (value.partition("=") for value in values)}
