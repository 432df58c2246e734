"""A benchmark script in, ncu's command line out; ncu's CSV in, occupancy, throughputs and stall reasons a kernel out."""

import csv
import io
import json

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path

# The kernel of `torch.cuda._sleep`, which stands before each provider's turn.
MARK = "spin_kernel"
# ncu's own sets of metrics, which hold those below on every architecture.
SECTIONS = ("SpeedOfLight", "Occupancy", "LaunchStats", "WarpStateStats")
METRICS = {
    "duration": "gpu__time_duration.sum",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "possible_occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "registers": "launch__registers_per_thread",
}
_STALL = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
TOP_STALLS = 3


@dataclass(frozen=True)
class Profiled:
    """One launch. Times in microseconds, shares from 0 to 1 of what the device can do at best.

    `stalls` are the reasons that warps waited for, the heaviest first, each with its share of the warps' cycles.
    """

    provider: str
    kernel: str
    microseconds: float
    occupancy: float
    possible_occupancy: float
    memory: float
    dram: float
    compute: float
    registers: int
    stalls: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Profile:
    """What ncu said of one op file's full pass and of its baselines: where, when, at which x."""

    op: str
    gpu: str
    date: str
    x: str
    launches: tuple[Profiled, ...]


def path_beside(csv_file: Path, kernel: str) -> Path:
    """Where a kernel's profile is kept."""
    return csv_file.parent / "ncu" / f"{kernel}.json"


def to_text(profile: Profile) -> str:
    """The profile as the text of a JSON file."""
    return json.dumps(asdict(profile), indent=1) + "\n"


def read(path: Path) -> Profile | None:
    """The profile in a file; None if there is no file."""
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    launches = (Profiled(**{**one, "stalls": tuple(map(tuple, one["stalls"]))}) for one in data.pop("launches"))
    return Profile(launches=tuple(launches), **data)


def lines(profile: Profile) -> Iterator[str]:
    """A report's section: what was profiled, and the table."""
    yield (
        f"One full pass of each at {profile.x} on {profile.gpu}, {profile.date}: caches flushed before each kernel, clocks "
        "as they were (`--clock-control none`)."
    )
    yield ""
    yield from table(profile.launches)


def command(python: str, script: str, x: int | None, providers: Sequence[str], report: str) -> list[str]:
    """ncu's command line, which writes `report`.ncu-rep.

    Clocks stay as they are: locked to their base, a kernel that waits for memory looks better than it is.
    """
    size = ["--x", str(x)] if x is not None else []
    return [
        *("ncu", "--clock-control", "none", "--profile-from-start", "off", "--force-overwrite", "-o", report),
        *(word for name in SECTIONS for word in ("--section", name)),
        *(python, "-m", "liger_dev.bench.profiled", script, *size, "--providers", *providers),
    ]


def export(report: str) -> list[str]:
    """The command line that prints a report as CSV, a row a launch, a column a metric."""
    return ["ncu", "--import", f"{report}.ncu-rep", "--csv", "--page", "raw", "--print-units", "base"]


def parse(text: str, providers: Sequence[str]) -> tuple[Profiled, ...]:
    """The launches in ncu's CSV, by provider: a mark stands before each one's turn. Lines that are no CSV are skipped."""
    lines = text.splitlines()
    header = next((number for number, line in enumerate(lines) if line.startswith('"ID",')), None)
    if header is None:
        return ()
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[header:]))))
    # The row after the header holds units, and no launch has an empty number.
    turns = iter(providers)
    provider, found = "", []
    for row in (row for row in rows if row["ID"]):
        if MARK in row["Kernel Name"]:
            provider = next(turns, "")
        elif provider:
            found.append(_launch(provider, row))
    return tuple(found)


def _launch(provider: str, row: Mapping[str, str]) -> Profiled:
    value = {name: _number(row.get(metric, "")) for name, metric in METRICS.items()}
    stalls = {
        column.removeprefix(_STALL[0]).removesuffix(_STALL[1]): _number(text)
        for column, text in row.items()
        if column.startswith(_STALL[0]) and column.endswith(_STALL[1])
    }
    total = sum(stalls.values())
    # A warp that issues is no stall, and neither is one that was ready and not chosen.
    waits = sorted(((share, name) for name, share in stalls.items() if name not in ("selected", "not_selected")))[::-1]
    return Profiled(
        provider,
        row["Kernel Name"],
        microseconds=value["duration"] / 1000,
        occupancy=value["occupancy"] / 100,
        possible_occupancy=value["possible_occupancy"] / 100,
        memory=value["memory"] / 100,
        dram=value["dram"] / 100,
        compute=value["compute"] / 100,
        registers=int(value["registers"]),
        stalls=tuple((name.replace("_", " "), share / total) for share, name in waits[:TOP_STALLS] if share > 0),
    )


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def table(profiled: Sequence[Profiled]) -> Iterator[str]:
    """The launches as a Markdown table: all of the kernel's, and of a baseline those that take most of its time."""
    yield "| Provider | Kernel | Time (µs) | Occupancy (possible) | Memory | DRAM | Compute | Registers | Warps wait for |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---|"
    for provider in dict.fromkeys(one.provider for one in profiled):
        own = [one for one in profiled if one.provider == provider]
        shown = own if provider == "liger" else sorted(own, key=lambda one: -one.microseconds)[:_SHOWN]
        yield from (_line(one) for one in shown)
        if len(shown) < len(own):
            rest = sum(one.microseconds for one in own) - sum(one.microseconds for one in shown)
            yield f"| {provider} | {len(own) - len(shown)} more | {rest:.1f} | | | | | | |"


_SHOWN = 4


def _line(one: Profiled) -> str:
    stalls = ", ".join(f"{name} {100 * share:.0f} %" for name, share in one.stalls)
    shares = f"{100 * one.memory:.0f} % | {100 * one.dram:.0f} % | {100 * one.compute:.0f} %"
    occupancy = f"{100 * one.occupancy:.0f} % ({100 * one.possible_occupancy:.0f} %)"
    return (
        f"| {one.provider} | `{_shorter(one.kernel)}` | {one.microseconds:.1f} | {occupancy} | {shares} "
        f"| {one.registers} | {stalls} |"
    )


def _shorter(kernel: str) -> str:
    """A C++ kernel's name without its template arguments and namespaces."""
    return kernel.replace("<unnamed>", "").split("<")[0].split("(")[0].split("::")[-1].removeprefix("void ").strip()
