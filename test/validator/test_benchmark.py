"""The validator's benchmark step on real children; a script that writes rows stands in for a GPU."""

import subprocess
import sys

from pathlib import Path

import pytest

from liger_dev import workspace
from liger_dev.bench import csv
from liger_dev.benchmark import Benchmark
from liger_dev.benchmark import recorded
from liger_dev.benchmark import run_benchmark
from liger_dev.errors import StaleWorkspace
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.scratch import kernel_copy

SCRIPT = "benchmark/scripts/benchmark_center.py"
DATA = "benchmark/data/all_benchmark_data.csv"

ROWS = '''"""Writes rows that nobody measured."""

import sys

from pathlib import Path

from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import append



def row(provider, value):
    fixed = ("N", "columns", 1024, value, value, value, "{}", "a GPU", "2026-01-01 00:00:00", "0")
    return Measurement("center", provider, "full", "speed", "ms", *fixed)


append(Path(sys.argv[2]), [row("liger", 1.0), row("torch", 2.0)])
'''


def _run(root: Path, script: str, environment: dict[str, str] | None = None) -> Benchmark:
    (root / SCRIPT).write_text(script)
    with kernel_copy("center", root) as copy:
        return run_benchmark(copy, environment or {}, lambda line: None)


def test_rows_are_merged_into_the_csv_and_plotted(center: Path):
    old = _run(center, ROWS.replace('"center", provider', '"other", provider')).rows
    assert old == ()
    first = _run(center, ROWS)
    (center / DATA).parent.mkdir(parents=True, exist_ok=True)
    (center / DATA).write_bytes(_of(first.data, DATA))
    second = _run(center, ROWS.replace("1.0", "1.5"))
    merged = center / "merged.csv"
    merged.write_bytes(_of(second.data, DATA))
    assert [row.y_value_50 for row in csv.read(merged)] == [1.5, 2.0]
    ((path, picture),) = second.plots
    assert path == "benchmark/visualizations/center_speed_full.png"
    assert picture.startswith(b"\x89PNG")
    assert not second.fault


def test_rows_that_another_process_writes_after_the_merge_are_not_lost(center: Path):
    found = _run(center, ROWS)
    workspace.apply(center, ChangeSet((Change(DATA, "another kernel's rows\n", ""),)), "other")
    with pytest.raises(StaleWorkspace, match="was changed on disk"):
        workspace.apply(center, ChangeSet(found.data), "this")
    assert (center / DATA).read_text() == "another kernel's rows\n"


def test_the_target_follows_the_environment(center: Path):
    found = _run(center, ROWS, {"LIGER_BENCH_TARGET": "mine"})
    assert [change.path for change in found.data] == ["benchmark/data/all_benchmark_data_mine.csv"]


def test_the_tag_takes_the_kernel_s_place_among_the_providers(center: Path):
    script = "import os\nfrom liger_dev.bench.csv import tagged\n" + ROWS.replace(
        '"liger", 1', 'tagged("liger", os.environ), 1'
    )
    found = _run(center, script, {"LIGER_BENCH_PROVIDER_TAG": "liger_wide", "SECRET_KEY": "x"})
    assert [row.kernel_provider for row in found.rows] == ["liger_wide", "torch"]


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("raise RuntimeError('center fails at N=8')", "RuntimeError: center fails at N=8"),
        ("import os; os.abort()", "exit code -6"),
        ("import sys; sys.exit('1.2 times the copy bandwidth')", "1.2 times the copy bandwidth"),
    ],
)
def test_a_kernel_that_fails_while_it_is_measured_fails(center: Path, script: str, fault: str):
    found = _run(center, script)
    assert fault in found.fault
    assert found.rows == ()


def test_no_device_is_a_reason_and_no_fault(center: Path):
    found = _run(center, "import sys; print('no CUDA device', file=sys.stderr); sys.exit(2)")
    assert found.reason == "no CUDA device"
    assert not found.fault


KEEPS = (
    ROWS
    + """
from liger_dev.bench import samples

op = Path(sys.argv[0]).resolve().parents[2] / "kernels/ops/center.py"
pair = [row("liger", 1.0), row("torch", 2.0)]
under = samples.Circumstances(op=samples.op_digest(op.read_text()))
samples.keep(samples.path_beside(Path(sys.argv[2]), "center"), pair, [(1.0, 1.0), (2.0, 2.0)], under)
"""
)


def _of(changes: tuple[Change, ...], path: str) -> bytes:
    return next(change.data() for change in changes if change.path == path)


def _write(root: Path, files: tuple[tuple[str, bytes], ...]) -> None:
    for path, data in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def test_what_was_measured_of_this_very_op_file_is_found_again_and_no_other(center: Path):
    found = _run(center, KEEPS)
    assert [one.samples for one in found.samples] == [(1.0, 1.0), (2.0, 2.0)]
    _write(center, (*((change.path, change.data()) for change in found.data), *found.plots))
    with kernel_copy("center", center) as copy:
        again = recorded(copy, {})
        assert again is not None and again.rows == found.rows and again.samples == found.samples
        assert again.recorded == "Measured on a GPU, 2026-01-01, with this very op file; not again here."
        assert [path for path, _ in again.plots] == ["benchmark/visualizations/center_speed_full.png"]
        op = copy.tree / copy.op
        op.write_text(op.read_text() + "\n\nCHANGED = True\n")
        assert recorded(copy, {}) is None


STOPPED = """
import os
import signal
import sys
from pathlib import Path
from liger_dev.benchmark import run_benchmark
from liger_dev.scratch import kernel_copy

# What is started in the background of a script ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def stop(line):
    if line == "measured":
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))

with kernel_copy("center", Path(sys.argv[1])) as copy:
    run_benchmark(copy, {}, stop)
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGKILL"])
def test_a_benchmark_that_is_stopped_goes_on_where_it_was(center: Path, signal: str):
    script = (
        KEEPS
        + "\nprint('measured', flush=True)\nimport time\ntime.sleep(0 if Path(sys.argv[2] + '.again').exists() else 30)\n"
    )
    (center / SCRIPT).write_text(
        script.replace(
            "append(Path",
            "Path(sys.argv[2] + '.again').touch() if Path(sys.argv[2]).exists() else None\nappend(Path",
            1,
        )
    )
    stopped = subprocess.run([sys.executable, "-c", STOPPED, str(center), signal], capture_output=True, text=True)
    assert stopped.returncode == -9 if signal == "SIGKILL" else "KeyboardInterrupt" in stopped.stderr
    said: list[str] = []
    with kernel_copy("center", center) as copy:
        found = run_benchmark(copy, {}, said.append)
    assert said[0] == "going on from 2 rows of a benchmark that was stopped"
    assert len(found.rows) == len(found.samples) == 2
    assert not [left for kept in ("bench", "scratch") for left in (center / ".liger-dev" / kept).iterdir()]
