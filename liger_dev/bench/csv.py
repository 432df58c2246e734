"""Measurements in, a CSV file of Liger's fifteen columns out, and back: read, append without duplicates, replace."""

import csv
import fcntl
import os
import tempfile

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import fields
from pathlib import Path

from liger_dev.errors import BadInput

FILE_NAME = "all_benchmark_data.csv"
# The second stands for the first where a pass can't be replayed: what its kernels take, without the time between them.
DEVICE_TIMES = ("device_time", "kernel_time")


@dataclass(frozen=True)
class Measurement:
    """One row: a provider's median and 20 % and 80 % quantiles of one metric, in one mode, at one x.

    `metric_name` is `speed` (ms a call), `device_time` (ms on the device alone, as a replay takes it), `kernel_time` (the
    sum of its kernels' durations, where no replay is possible), `memory` (peak MB) or `bandwidth_share` (of the measured
    copy bandwidth). `extra_benchmark_config_str` is JSON: the sizes that were
    held fixed, and the dtype. `kernel_operation_mode` is `forward`, `backward` or `full`.
    """

    kernel_name: str
    kernel_provider: str
    kernel_operation_mode: str
    metric_name: str
    metric_unit: str
    x_name: str
    x_label: str
    x_value: int | float | str
    y_value_50: float
    y_value_20: float
    y_value_80: float
    extra_benchmark_config_str: str
    gpu_name: str
    timestamp: str
    liger_version: str


COLUMNS = tuple(field.name for field in fields(Measurement))
# Liger's own key: unit, label, values, time and version are no part of it.
KEY_COLUMNS = (
    "kernel_name",
    "kernel_provider",
    "kernel_operation_mode",
    "metric_name",
    "x_name",
    "x_value",
    "extra_benchmark_config_str",
    "gpu_name",
)

Key = tuple[str, ...]


def key(row: Measurement | Mapping[str, object]) -> Key:
    """What makes a row the same measurement as another, as text."""
    data = asdict(row) if isinstance(row, Measurement) else row
    return tuple(str(data[name]) for name in KEY_COLUMNS)


def read(path: Path) -> tuple[Measurement, ...]:
    """The rows of a CSV file, in order; none if there is no file. Raises BadInput that names the line."""
    return tuple(_parse(row, f"{path}:{line}") for line, row in enumerate(_read_text(path), start=2))


def append(path: Path, rows: Sequence[Measurement], overwrite: bool = False) -> tuple[Measurement, ...]:
    """Adds `rows` to a CSV file and returns those that were written.

    A row whose key is in the file replaces the old one in its place if `overwrite`, and is left out otherwise. Rows
    that were there keep their text. The file is replaced in one step, under a lock on its folder, so that two
    benchmarks at once lose no rows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _folder_lock(path.parent):
        table: dict[Key, dict[str, str]] = {key(row): row for row in _read_text(path)}
        written = tuple(row for row in rows if overwrite or key(row) not in table)
        table.update({key(row): {name: str(value) for name, value in asdict(row).items()} for row in written})
        if written:
            _replace(path, list(table.values()))
    return written


def target(data_folder: Path, environment: Mapping[str, str]) -> Path:
    """The CSV file that a benchmark writes: LIGER_BENCH_TARGET=name picks `all_benchmark_data_name.csv`."""
    name = environment.get("LIGER_BENCH_TARGET", "")
    if not name:
        return data_folder / FILE_NAME
    if Path(name).suffix == ".csv":
        return Path(name)
    return data_folder / f"{FILE_NAME.removesuffix('.csv')}_{name}.csv"


def tagged(provider: str, environment: Mapping[str, str]) -> str:
    """The provider's name in the CSV: LIGER_BENCH_PROVIDER_TAG takes the place of `liger`, other providers keep theirs."""
    tag = environment.get("LIGER_BENCH_PROVIDER_TAG", "")
    return tag if tag and provider == "liger" else provider


def _read_text(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise BadInput(
                "the CSV file does not have Liger's fifteen columns", str(path), "move it away, or mend its header"
            )
        rows = list(reader)
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise BadInput(
                "a row of the CSV file does not have fifteen fields", f"{path}:{line}", "mend or delete the row"
            )
    return rows


def _parse(row: Mapping[str, str], where: str) -> Measurement:
    try:
        values = [float(row[name]) for name in ("y_value_50", "y_value_20", "y_value_80")]
    except ValueError:
        raise BadInput("a measured value of the CSV file is no number", where, "mend or delete the row") from None
    data = {**row, "x_value": _number(row["x_value"])}
    data.update(zip(("y_value_50", "y_value_20", "y_value_80"), values, strict=True))
    return Measurement(**data)  # type: ignore[arg-type]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _line_end(path: Path) -> str:
    """The file's own: Liger's CSV has CRLF, and a diff of every line would hide the new ones."""
    return "\r\n" if path.is_file() and b"\r\n" in path.read_bytes() else "\n"


def _replace(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator=_line_end(path))
            writer.writeheader()
            writer.writerows(rows)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)  # gone already, unless something failed


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
