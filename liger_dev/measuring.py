"""A kernel of the workspace in, its measurements or its plots out, as the files to write and a text for the screen."""

import base64
import os
import tempfile

from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from liger_dev import measured
from liger_dev import results
from liger_dev import workspace
from liger_dev.bench import csv
from liger_dev.bench import full_table
from liger_dev.bench import plots
from liger_dev.bench import samples
from liger_dev.bench import table
from liger_dev.bench.samples import Sampled
from liger_dev.benchmark import Benchmark
from liger_dev.benchmark import run_benchmark
from liger_dev.errors import BadInput
from liger_dev.gate import gpu_name
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.scratch import kernel_copy

_VISUALIZATIONS = "benchmark/visualizations"


def bench(name: str, root: Path, say: Callable[[str], None], options: Sequence[str] = ()) -> dict[str, Any]:
    """Measures a kernel: {failure, markdown, changes}. Raises BadInput without a GPU or without the kernel's files."""
    with kernel_copy(name, root) as copy:
        device = gpu_name()
        if not device:
            raise BadInput(
                "a benchmark needs a CUDA GPU, and there is none here", todo="`liger-dev doctor` says what was found"
            )
        found = run_benchmark(copy, os.environ, say, options)
        changes = ChangeSet((*found.data, *(_change(root, path, data) for path, data in found.plots)))
    failure = found.fault or found.reason
    return {
        "failure": failure,
        "markdown": failure or _tables(name, device, found),
        "changes": changes.to_json(),
    }


def plot(name: str, root: Path) -> dict[str, Any]:
    """Draws what the CSV file has of a kernel, the same way. Raises BadInput if it has nothing."""
    rows = [row for row in csv.read(_data(root)) if row.kernel_name == name]
    if not rows:
        raise BadInput(
            f"there are no measurements of '{name}'", str(_data(root)), f"measure it first: liger-dev bench {name}"
        )
    return _drawn(root, lambda folder: plots.plot(rows, folder))


def roofline(root: Path) -> dict[str, Any]:
    """Draws all kernels' shares of the copy bandwidth in one picture. Raises BadInput if none was measured."""
    rows = csv.read(_data(root))
    if not any(row.metric_name == "bandwidth_share" for row in rows):
        raise BadInput("no share of the copy bandwidth was measured", str(_data(root)), "measure: liger-dev bench NAME")
    return _drawn(root, lambda folder: (plots.plot_roofline(rows, folder / "roofline.png"),))


def measured_kernels(root: Path) -> list[str]:
    """The kernels that the CSV file has measurements of. Raises BadInput if it has none."""
    names = sorted({row.kernel_name for row in csv.read(_data(root))})
    if not names:
        raise BadInput("there are no measurements", str(_data(root)), "measure first: liger-dev bench NAME")
    return names


def page(name: str, root: Path) -> dict[str, Any]:
    """The page of the report that the workspace has of a kernel. Raises BadInput if it has none."""
    changes = results.rebuild(name, root)
    return {"failure": "", "markdown": f"- {changes.changes[0].path}", "changes": changes.to_json()}


def write_table(root: Path, path: Path) -> None:
    """Puts the table of all measurements between the marks in a Markdown file. Raises BadInput without marks or rows."""
    rows, found = csv.read(_data(root)), _samples(root)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the file can't be read: {error.strerror}", str(path), "name a Markdown file") from None
    older = _older(root, found)
    lines = [table.caption(rows, found, older), "", *table.short(rows, found, older)]
    path.write_text(table.into(text, lines, str(path)), encoding="utf-8")


def write_full_table(root: Path, path: Path) -> None:
    """Writes the file with every size of all measurements. Raises BadInput without rows."""
    found = _samples(root)
    text = full_table.full(csv.read(_data(root)), found, _samples(root, noise=True), _older(root, found))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _samples(root: Path, noise: bool = False) -> list[Sampled]:
    """Those of every kernel that was measured, or of kernels against themselves."""
    names = measured_kernels(root)
    return [one for name in names for one in samples.read(samples.path_beside(_data(root), name, noise))]


def _older(root: Path, found: Sequence[Sampled]) -> frozenset[table.Size]:
    """The sizes that were measured of another op file than the workspace has now."""
    paths = {name: root / "kernels" / "ops" / f"{name}.py" for name in {one.key[0] for one in found}}
    ops = {name: samples.op_digest(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.is_file()}
    return table.sizes_of_older(found, ops)


def _data(root: Path) -> Path:
    return csv.target(root / "benchmark" / "data", os.environ)


def _drawn(root: Path, draw: Callable[[Path], tuple[Path, ...]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="liger-dev-plot-") as folder:
        drawn = [(f"{_VISUALIZATIONS}/{path.name}", path.read_bytes()) for path in draw(Path(folder))]
    changes = ChangeSet(tuple(_change(root, path, data) for path, data in drawn))
    return {"failure": "", "markdown": "\n".join(f"- {path}" for path, _ in drawn), "changes": changes.to_json()}


def _tables(name: str, device: str, done: Benchmark) -> str:
    verdicts = measured.verdict_lines(measured.points(done.samples))
    if not done.rows:
        return "\n".join([f"# {name} against itself on {device}", "", *verdicts])
    found = measured.pairs(done.rows)
    flags = [f"> **Catastrophic:** {flag.text}\n>" for flag in measured.flags(done.rows, found)]
    tables = [line for metric in ("speed", "memory") for line in ("", *measured.table(metric, found))]
    return "\n".join([f"# {name} on {device}", "", *flags, *tables, "", *verdicts, measured.assessment(done.rows)])


def _change(root: Path, path: str, data: bytes) -> Change:
    base = workspace.base_of(root, path)
    if path.endswith(".png"):
        return Change(path, base64.b64encode(data).decode(), base, binary=True)
    return Change(path, data.decode(), base)
