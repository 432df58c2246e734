"""Takes a kernel's scratch copy, runs its benchmark script in a child, and gives the rows, the CSV and the plots."""

import hashlib
import re
import shutil
import sys

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path

from liger_dev.bench import csv
from liger_dev.bench import ncu
from liger_dev.bench import plots
from liger_dev.bench import samples
from liger_dev.bench.samples import Sampled
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import PASSED
from liger_dev.records import Change
from liger_dev.sandbox import Completed
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child
from liger_dev.scratch import KernelCopy
from liger_dev.testrun import child_env
from liger_dev.testrun import portable
from liger_dev.workspace import View

BENCHMARK_LIMITS = Limits(seconds=1800)
NCU_SECONDS = 300
_VISUALIZATIONS = "benchmark/visualizations"


@dataclass(frozen=True)
class Benchmark:
    """What was measured. `data` are changes of the workspace's files, `plots` are whole ones; `reason` is why nothing was
    measured.

    `samples` are those that the rows' quantiles were taken from; `recorded` says when and where, if it was not now;
    `noise` are the samples of this op file against itself that the workspace has.

    `fault` is how the kernel or its script failed here, which fails the kernel; empty if it did not.
    """

    rows: tuple[csv.Measurement, ...]
    data: tuple[Change, ...]
    plots: tuple[tuple[str, bytes], ...]
    reason: str
    fault: str = ""
    samples: tuple[Sampled, ...] = ()
    recorded: str = ""
    noise: tuple[Sampled, ...] = ()


def not_measured(reason: str) -> Benchmark:
    return Benchmark((), (), (), reason)


def run_benchmark(
    copy: KernelCopy, environment: Mapping[str, str], say: Callable[[str], None], options: Sequence[str] = ()
) -> Benchmark:
    """Measures into a CSV file of its own, and merges its rows into the workspace's.

    Rows of the same key are replaced: the kernel that was measured before may have been another one. `environment` is
    where LIGER_BENCH_TARGET and LIGER_BENCH_PROVIDER_TAG are read; a target outside the workspace is not written.
    `options` are more of the script's own. Each x is kept as soon as it is measured, so that whatever stops this process, the
    same kernel's next benchmark goes on from there.
    """
    folder = copy.folder()
    fresh = folder / "benchmark.csv"
    waiting = _kept(copy, options)
    if waiting.is_dir():
        say(f"going on from {len(csv.read(waiting / fresh.name))} rows of a benchmark that was stopped")
        shutil.copytree(waiting, folder, dirs_exist_ok=True)
    argv = [sys.executable, str(copy.tree / copy.benchmark), "--out", str(fresh), *options]
    tag = {name: value for name, value in environment.items() if name == "LIGER_BENCH_PROVIDER_TAG"}
    kept_at = 0

    def heard(line: str) -> None:
        nonlocal kept_at
        if fresh.is_file() and (changed := fresh.stat().st_mtime_ns) != kept_at:
            _keep(folder, waiting)
            kept_at = changed
        say(line)

    done = run_child(argv, scratch=folder, limits=BENCHMARK_LIMITS, env={**child_env(copy), **tag}, on_line=heard)
    shutil.rmtree(waiting, ignore_errors=True)
    rows = tuple(row for row in csv.read(fresh) if row.kernel_name == copy.name)
    if done.returncode not in (PASSED, BAD_INPUT) or done.timed_out:
        fault = _fault(done, copy)
        return replace(not_measured("the benchmark did not run to its end"), fault=fault)
    noise = samples.path_beside(fresh, copy.name, noise=True)
    if noise.is_file():
        own = samples.path_beside(copy.root / "benchmark/data" / fresh.name, copy.name, noise=True)
        kept = _written(copy, own, noise.read_bytes())
        return Benchmark((), (kept,), (), "", samples=samples.read(noise))
    if not rows:
        return not_measured(_last_line(portable(done.stderr, copy)) or "the benchmark script measured nothing")
    target = csv.target(copy.root / "benchmark/data", environment)
    found = samples.path_beside(fresh, copy.name)
    data = _merged(copy, target, rows, found) if target.is_relative_to(copy.root) else ()
    itself = _own(copy, samples.path_beside(target, copy.name, noise=True))
    return Benchmark(rows, data, _plots(copy, rows), "", samples=samples.read(found), noise=itself)


def _kept(copy: KernelCopy, options: Sequence[str]) -> Path:
    """Where a stopped benchmark's rows wait: only the same files, measured the same way, find them."""
    parts = [*((copy.tree / path).read_bytes() for path in (copy.op, copy.benchmark)), repr(list(options)).encode()]
    return copy.root / ".liger-dev" / "bench" / f"{copy.name}-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}"


def _keep(folder: Path, kept: Path) -> None:
    """Copies rows and samples. The rows come last: they are what tells the next benchmark that an x is measured."""
    for path in (*(folder / samples.FOLDER).glob("*.jsonl"), folder / "benchmark.csv"):
        target = kept / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(f"{target.name}.half")
        shutil.copyfile(path, half)
        half.replace(target)


def _merged(copy: KernelCopy, target: Path, rows: Sequence[csv.Measurement], fresh: Path) -> tuple[Change, ...]:
    """The workspace's CSV with `rows` in it, and its file of samples with those in `fresh`."""
    view, merged = View(copy.root), copy.out / "merged.csv"
    path, own = (_path(copy, file) for file in (target, samples.path_beside(target, copy.name)))
    merged.unlink(missing_ok=True)
    if (old := view.content(path)) is not None:
        merged.write_bytes(old)
    csv.append(merged, rows, overwrite=True)
    lines = samples.merged(view.read(own) or "", fresh.read_text(encoding="utf-8") if fresh.is_file() else "")
    changes = [view.change(path, merged.read_bytes().decode()), *([view.change(own, lines)] if lines else [])]
    return tuple(changes)


def _written(copy: KernelCopy, target: Path, data: bytes) -> Change:
    """A file of the workspace that nothing of it was merged into."""
    return View(copy.root).change(_path(copy, target), data.decode())


def _path(copy: KernelCopy, target: Path) -> str:
    return target.relative_to(copy.root).as_posix()


def samples_path(name: str) -> str:
    """Where the workspace keeps the raw samples of a kernel's measurements."""
    return samples.path_beside(Path("benchmark/data/benchmark.csv"), name).as_posix()


def recorded(copy: KernelCopy, environment: Mapping[str, str]) -> Benchmark | None:
    """What the workspace has of this very op file, measured on another machine or day; None if it has nothing."""
    target = csv.target(copy.root / "benchmark/data", environment)
    own = {one.key: one for one in _own(copy, samples.path_beside(target, copy.name))}
    rows = [row for row in csv.read(target) if csv.key(row) in own]
    if not rows:
        return None
    rows = plots.newest_configuration(rows)
    found = tuple(own[csv.key(row)] for row in rows)
    names = (plots.file_name(copy.name, metric, mode) for _, _, mode, metric, *_ in (one.key for one in found))
    drawn = [f"{_VISUALIZATIONS}/{name}" for name in dict.fromkeys(names)]
    pictures = tuple((path, b"") for path in drawn if (copy.root / path).is_file())
    dates = sorted({row.timestamp[:10] for row in rows})
    said = f"Measured on {rows[0].gpu_name}, {dates[-1]}, with this very op file; not again here."
    noise = _own(copy, samples.path_beside(target, copy.name, noise=True))
    return Benchmark(tuple(rows), (), pictures, "", samples=found, recorded=said, noise=noise)


def _own(copy: KernelCopy, path: Path) -> tuple[Sampled, ...]:
    """Those of a file's samples that were taken of this very op file."""
    op = samples.op_digest(copy.text(copy.op))
    return tuple(one for one in samples.read(path) if one.under.op == op)


def profile_with_ncu(copy: KernelCopy, gpu: str, date: str) -> tuple[str, tuple[Change, ...]]:
    """A report's lines on the kernels that a full pass launches, the generated op's and the reference's, and the file
    that keeps them; or why there are none."""
    folder, providers = copy.folder(), ("liger", "torch")
    report = str(folder / "profile")
    limits = replace(BENCHMARK_LIMITS, seconds=NCU_SECONDS)
    argv = ncu.command(sys.executable, str(copy.tree / copy.benchmark), None, providers, report)
    done = run_child(argv, scratch=folder, limits=limits, env=child_env(copy))
    if done.returncode or done.timed_out:
        # ncu writes what is wrong to stdout, in lines that it marks.
        told = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if "==ERROR==" in line]
        return f"Failed: {(told or [_fault(done, copy)])[0].replace('==ERROR==', '').strip()}", ()
    printed = run_child(ncu.export(report), scratch=folder, limits=limits, env={})
    found = ncu.parse(printed.stdout, providers)
    if not found:
        return "Failed: ncu's output names no kernel.", ()
    profile = ncu.Profile(samples.op_digest(copy.text(copy.op)), gpu, date, "its middle size", found)
    path = ncu.path_beside(csv.target(copy.root / "benchmark/data", {}), copy.name)
    return "\n".join(ncu.lines(profile)), (_written(copy, path, ncu.to_text(profile).encode()),)


def recorded_profile(copy: KernelCopy) -> str:
    """A report's lines on the profile that the workspace has of this very op file; empty if it has none."""
    found = ncu.read(ncu.path_beside(csv.target(copy.root / "benchmark/data", {}), copy.name))
    return "\n".join(ncu.lines(found)) if found and found.op == samples.op_digest(copy.text(copy.op)) else ""


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
