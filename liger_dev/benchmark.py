"""Takes a kernel's scratch copy, runs its benchmark script in a child, and gives the rows, the CSV and the plots."""

import re
import shutil
import sys

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from liger_dev.bench import csv
from liger_dev.bench import plots
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import PASSED
from liger_dev.sandbox import Completed
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child
from liger_dev.scratch import KernelCopy
from liger_dev.testrun import child_env
from liger_dev.testrun import portable

BENCHMARK_LIMITS = Limits(seconds=1800)
_VISUALIZATIONS = "benchmark/visualizations"


@dataclass(frozen=True)
class Benchmark:
    """What was measured. `data` and `plots` are files for the workspace; `reason` is why nothing was measured.

    `fault` is how the kernel or its script failed here, which fails the kernel; empty if it did not.
    """

    rows: tuple[csv.Measurement, ...]
    data: tuple[tuple[str, bytes], ...]
    plots: tuple[tuple[str, bytes], ...]
    reason: str
    fault: str = ""


def not_measured(reason: str) -> Benchmark:
    return Benchmark((), (), (), reason)


def run_benchmark(copy: KernelCopy, environment: Mapping[str, str], say: Callable[[str], None]) -> Benchmark:
    """Measures into a CSV file of its own, and merges its rows into the workspace's.

    Rows of the same key are replaced: the kernel that was measured before may have been another one. `environment` is
    where LIGER_BENCH_TARGET is read; a target outside the workspace is not written.
    """
    folder = copy.folder()
    fresh = folder / "benchmark.csv"
    argv = [sys.executable, str(copy.tree / copy.benchmark), "--out", str(fresh)]
    done = run_child(argv, scratch=folder, limits=BENCHMARK_LIMITS, env=child_env(copy), on_line=say)
    rows = tuple(row for row in csv.read(fresh) if row.kernel_name == copy.name)
    if done.returncode not in (PASSED, BAD_INPUT) or done.timed_out:
        fault = _fault(done, copy)
        return replace(not_measured("the benchmark did not run to its end"), fault=fault)
    if not rows:
        return not_measured(_last_line(portable(done.stderr, copy)) or "the benchmark script measured nothing")
    target = csv.target(copy.root / "benchmark/data", environment)
    merged = copy.out / "merged.csv"
    if target.is_file():
        shutil.copyfile(target, merged)
    csv.append(merged, rows, overwrite=True)
    data = (
        ((target.relative_to(copy.root).as_posix(), merged.read_bytes()),) if target.is_relative_to(copy.root) else ()
    )
    return Benchmark(rows, data, _plots(copy, rows), "")


def _fault(done: Completed, copy: KernelCopy) -> str:
    if done.timed_out:
        return f"it did not end within {BENCHMARK_LIMITS.seconds:g} s"
    return _last_line(portable(done.stderr, copy)) or f"it ended with exit code {done.returncode}"


def _last_line(text: str) -> str:
    """The exception's line, else the last one: a crash on the device is followed by advice and by warnings."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "Warning:" not in line]
    errors = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception|Exit|Failed): ", line)]
    return (errors or lines or [""])[-1]


def _plots(copy: KernelCopy, rows: Sequence[csv.Measurement]) -> tuple[tuple[str, bytes], ...]:
    drawn = plots.plot(rows, copy.out / "plots")
    return tuple((f"{_VISUALIZATIONS}/{path.name}", path.read_bytes()) for path in drawn)
