"""Lines of measured points in, the profile's records of better settings out: faster ones alone, ranges joined."""

import json

from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liger_dev.profile import Timing
from liger_dev.profile import Tuned

Line = Mapping[str, Any]
Key = tuple[str, ...]


def path_of(name: str) -> str:
    """Where a workspace keeps a kernel's points, all samples included."""
    return f"benchmark/data/tuning/{name}.jsonl"


def bucket(size: int) -> tuple[int, int]:
    """The sizes that are measured by one of them: above one power of two, up to the next."""
    end = 1 << max(size - 1, 0).bit_length()
    return (end // 2 if end > 1 else 0), end


def key_of(line: Line) -> Key:
    """What a point is measured once for: kernel, default, bucket, dtype, GPU and versions."""
    versions = json.dumps(line["versions"], sort_keys=True)
    default = json.dumps(line["default"])
    return (line["kernel"], line["body"], line["dtype"], str(bucket(line["size"])[1]), line["gpu"], versions, default)


def read(path: Path) -> list[dict[str, Any]]:
    """The points of a file, none without one; a last line that a kill cut short is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def merged(*files: Iterable[Line]) -> list[Line]:
    """The points of several files, the latest of each key."""
    return list({key_of(line): line for lines in files for line in lines}.values())


def to_text(lines: Iterable[Line]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def records(lines: Iterable[Line], bodies: Mapping[str, str]) -> list[Tuned]:
    """The settings that are faster than the default, for kernels as they are now (`bodies`).

    A later point of the same kernel, architecture, dtype and bucket counts. Neighbouring buckets with the same settings
    become one range.
    """
    latest = {
        (line["kernel"], line["arch"], line["dtype"], *bucket(line["size"])): line
        for line in sorted(lines, key=lambda line: str(line["timestamp"]))
        if bodies.get(line["kernel"]) == line["body"]
    }
    order = {kernel: i for i, kernel in enumerate(bodies)}
    joined: list[Tuned] = []
    for place in sorted(latest, key=lambda place: (order[place[0]], *place[1:])):
        line = latest[place]
        if line["best"] == line["default"]:
            continue
        record = _record(line)
        if joined and _adjoins(joined[-1], record):
            last = joined[-1]
            times = [*last.timings, *record.timings]
            update = {"up_to": record.up_to, "timings": times, "date": max(last.date, record.date)}
            joined[-1] = last.model_copy(update=update)
        else:
            joined.append(record)
    return joined


def _record(line: Line) -> Tuned:
    above, up_to = bucket(line["size"])
    timing = Timing(size=line["size"], ms=round(line["ms"], 5), default_ms=round(line["default_ms"], 5))
    return Tuned(
        kernel=line["kernel"],
        body=line["body"],
        arch=line["arch"],
        dtype=line["dtype"],
        above=above,
        up_to=up_to,
        settings=line["best"],
        gpu=line["gpu"],
        date=str(line["timestamp"])[:10],
        versions=line["versions"],
        timings=[timing],
    )


def _adjoins(last: Tuned, record: Tuned) -> bool:
    def place(one: Tuned) -> tuple[Any, ...]:
        return one.kernel, one.arch, one.dtype, one.gpu, one.versions, one.settings

    return last.up_to == record.above and place(last) == place(record)
