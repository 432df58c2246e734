"""Raw samples in, lines of JSON beside the CSV file out, and back: what intervals and verdicts are computed from."""

import json

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from liger_dev.bench.csv import Key
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import key

FOLDER = "samples"


@dataclass(frozen=True)
class Sampled:
    """One row of the CSV with all its samples, in the row's unit and in the order in which they were taken.

    `versions` are those of the packages that took part; `before` and `after` are the device's clocks, temperature and
    power around the measurements at this x.
    """

    key: Key
    timestamp: str
    samples: tuple[float, ...]
    versions: Mapping[str, str]
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def provider(self) -> str:
        return self.key[1]

    @property
    def mode(self) -> str:
        return self.key[2]

    @property
    def metric(self) -> str:
        return self.key[3]

    @property
    def x(self) -> str:
        return self.key[5]


def path_beside(csv_file: Path, kernel: str, noise: bool = False) -> Path:
    """Where a kernel's samples are kept; those of the kernel against itself apart from the others."""
    return csv_file.parent / FOLDER / f"{kernel}{'_noise' if noise else ''}.jsonl"


def keep(
    path: Path,
    rows: Sequence[Measurement],
    samples: Iterable[Sequence[float]],
    versions: Mapping[str, str],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """Appends the samples of `rows`, which were measured together, as one line.

    A later line of the same keys counts, an earlier one is history.
    """
    if not rows:
        return
    # A timer of a CUDA event counts in halves of a microsecond: more digits are noise.
    rounded = [[float(f"{value:.6g}") for value in values] for values in samples]
    series = [{"key": key(row), "samples": values} for row, values in zip(rows, rounded, strict=True)]
    shared = {"timestamp": rows[0].timestamp, "versions": versions, "before": before, "after": after}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**shared, "series": series}) + "\n")


def read(path: Path) -> tuple[Sampled, ...]:
    """The samples of a file, the latest of each key; none if there is no file."""
    if not path.is_file():
        return ()
    latest: dict[Key, Sampled] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        shared = json.loads(line)
        for one in shared.pop("series"):
            found = tuple(one["key"])
            latest[found] = Sampled(key=found, samples=tuple(one["samples"]), **shared)
    return tuple(latest.values())


def merged(*texts: str) -> str:
    """The lines of several such files, the latest last, without those whose every row was measured again."""
    lines = [line for text in texts for line in text.splitlines()]
    kept: list[str] = []
    measured: set[Key] = set()
    for line in reversed(lines):
        keys = {tuple(one["key"]) for one in json.loads(line)["series"]}
        if keys - measured:
            kept.append(line)
        measured |= keys
    return "".join(f"{line}\n" for line in reversed(kept))
