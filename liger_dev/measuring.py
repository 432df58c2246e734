"""A kernel of the workspace in, its measurements or its plots out, as the files to write and a text for the screen."""

import base64
import os
import tempfile

from collections.abc import Callable
from pathlib import Path
from typing import Any

from liger_dev import measured
from liger_dev import workspace
from liger_dev.bench import csv
from liger_dev.bench import plots
from liger_dev.benchmark import run_benchmark
from liger_dev.errors import BadInput
from liger_dev.gate import gpu_name
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.scratch import kernel_copy

_VISUALIZATIONS = "benchmark/visualizations"


def bench(name: str, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures a kernel: {failure, markdown, changes}. Raises BadInput without a GPU or without the kernel's files."""
    with kernel_copy(name, root) as copy:
        device = gpu_name()
        if not device:
            raise BadInput(
                "a benchmark needs a CUDA GPU, and there is none here", todo="`liger-dev doctor` says what was found"
            )
        found = run_benchmark(copy, os.environ, say)
        files = (*found.data, *found.plots)
        changes = ChangeSet(tuple(_change(root, path, data) for path, data in files))
    markdown = _tables(name, device, found.rows) if found.rows else found.reason
    return {"failure": found.reason, "markdown": markdown, "changes": changes.to_json()}


def plot(name: str, root: Path) -> dict[str, Any]:
    """Draws what the CSV file has of a kernel, the same way. Raises BadInput if it has nothing."""
    target = csv.target(root / "benchmark" / "data", os.environ)
    rows = [row for row in csv.read(target) if row.kernel_name == name]
    if not rows:
        raise BadInput(
            f"there are no measurements of '{name}'", str(target), f"measure it first: liger-dev bench {name}"
        )
    with tempfile.TemporaryDirectory(prefix="liger-dev-plot-") as folder:
        drawn = [(f"{_VISUALIZATIONS}/{path.name}", path.read_bytes()) for path in plots.plot(rows, Path(folder))]
    changes = ChangeSet(tuple(_change(root, path, data) for path, data in drawn))
    markdown = "\n".join(f"- {path}" for path, _ in drawn)
    return {"failure": "", "markdown": markdown, "changes": changes.to_json()}


def _tables(name: str, device: str, rows: tuple[csv.Measurement, ...]) -> str:
    found = measured.pairs(rows)
    flags = [f"> **Catastrophic:** {flag}" for flag in measured.flags(rows, found)]
    tables = [line for metric in ("speed", "memory") for line in ("", *measured.table(metric, found))]
    return "\n".join([f"# {name} on {device}", "", *flags, *tables, "", measured.assessment(found)])


def _change(root: Path, path: str, data: bytes) -> Change:
    base = workspace.base_of(root, path)
    if path.endswith(".png"):
        return Change(path, base64.b64encode(data).decode(), base, binary=True)
    return Change(path, data.decode(), base)
