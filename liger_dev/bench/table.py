"""All kernels' rows and samples in, one Markdown table of device times against every baseline out, a row a kernel."""

import re

from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set

from liger_dev.bench.comparing import Timed
from liger_dev.bench.comparing import timed
from liger_dev.bench.csv import DEVICE_TIMES
from liger_dev.bench.csv import Measurement
from liger_dev.bench.models import DEFAULT_MODEL
from liger_dev.bench.models import MODELS
from liger_dev.bench.plots import newest_configuration
from liger_dev.bench.plots import providers_in_order
from liger_dev.bench.samples import Sampled
from liger_dev.bench.sweeps import MODEL_AXES
from liger_dev.bench.sweeps import OTHER_SWEEPS
from liger_dev.errors import BadInput

# A kernel, an x axis, an x, a configuration and a GPU.
Size = tuple[str, str, str, str, str]
MODES = ("forward", "backward", "full")
TITLES = {"liger": "generated", "torch": "eager", "torch_compile": "torch.compile", "liger_kernel": "liger-kernel"}
BEGIN, END = "<!-- measurements: liger-dev report --table -->", "<!-- end of measurements -->"
ABSENT, ALONE, OLDER = "–", "†", "‡"
_OLDER = f" {OLDER}: measured of the op file as it was before its last change."


def into(text: str, lines: Sequence[str], where: str) -> str:
    """`text` with `lines` between the two marks. Raises BadInput where they are missing."""
    if BEGIN not in text or END not in text:
        raise BadInput("the file does not say where the table goes", where, f"add the lines\n{BEGIN}\n{END}")
    return re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: "\n".join([BEGIN, "", *lines, "", END]),
        text,
        flags=re.DOTALL,
    )


def short(rows: Sequence[Measurement], samples: Sequence[Sampled], older: Set[Size] = frozenset()) -> list[str]:
    """A row a kernel, at the size of the default model or the nearest that was measured, in its newest configuration.

    A cell is the median device time in ms of forward, backward and full pass; the last column says how the kernel
    compares with the fastest baseline of each. The sizes in `older` are marked.
    """
    newest: dict[str, list[Measurement]] = {}
    # A sweep over models or tokens stands for a kernel that no other was made of.
    for (kernel, _), own in sorted(newest_of_each(rows).items(), key=lambda one: one[0][1] in OTHER_SWEEPS):
        newest.setdefault(kernel, own)
    providers = providers_in_order([row for own in newest.values() for row in own if row.kernel_provider in TITLES])
    head = [TITLES[name] for name in providers]
    compared: dict[tuple[str, ...], Timed] = {
        (one.kernel, one.mode, one.x, one.config, one.gpu): one for one in timed(samples) if one.metric != "speed"
    }
    lines = [
        f"| kernel | size | {' | '.join(head)} | memory (MB) | against the fastest |",
        f"|---|---|{'---:|' * len(head)}---:|---|",
    ]
    return lines + [_line(name, own, providers, compared, older) for name, own in sorted(newest.items())]


def newest_of_each(rows: Sequence[Measurement]) -> dict[tuple[str, str], list[Measurement]]:
    """The rows of each kernel and x axis in their newest configuration."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        groups.setdefault((row.kernel_name, row.x_name), []).append(row)
    return {place: newest_configuration(own) for place, own in sorted(groups.items())}


def sizes_of_older(samples: Sequence[Sampled], ops: Mapping[str, str]) -> frozenset[Size]:
    """The sizes at which a kernel was measured of another op file than the one whose digest `ops` has of it."""
    return frozenset(
        (kernel, x_name, x, config, gpu)
        for one in samples
        for kernel, _, _, _, x_name, x, config, gpu in (one.key,)
        if one.under.op != ops.get(kernel, "")
    )


def caption(rows: Sequence[Measurement], samples: Sequence[Sampled], older: Set[Size] = frozenset()) -> str:
    """What the short table shows, and where its figures come from."""
    return (
        f"{origin(rows, samples)}. Median device time in ms, forward / backward / full, bfloat16, L2 cache flushed; peak "
        f"memory of a full pass beside eager's. The verdict is the 95 % interval's against the fastest baseline. "
        f"{ABSENT}: no such op, or no time of its own. {ALONE}: its kernels' time alone, since no graph replays it."
        + older_in_words(older)
    )


def older_in_words(older: Set[Size]) -> str:
    return _OLDER if older else ""


def origin(rows: Sequence[Measurement], samples: Sequence[Sampled]) -> str:
    """Which GPU, when, with which versions."""
    dates = sorted({row.timestamp[:10] for row in rows})
    versions: dict[str, str] = {}
    for one in samples:
        versions.update(one.under.versions)
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    gpus = ", ".join(sorted({row.gpu_name for row in rows}))
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{gpus}, {span}; {told}"


def _line(
    name: str,
    rows: Sequence[Measurement],
    providers: Sequence[str],
    compared: Mapping[tuple[str, ...], Timed],
    older: Set[Size],
) -> str:
    x, config, gpu = _usual(rows), rows[0].extra_benchmark_config_str, rows[0].gpu_name
    at = {(row.kernel_provider, row.metric_name, row.kernel_operation_mode): row for row in rows if row.x_value == x}
    cells = [" / ".join(_time(at, provider, mode) for mode in MODES) for provider in providers]
    own, eager = (at.get((provider, "memory", "full")) for provider in ("liger", "torch"))
    memory = f"{own.y_value_50:.0f} ({eager.y_value_50:.0f})" if own and eager else ABSENT
    passes = [compared.get((name, mode, str(x), config, gpu)) for mode in MODES]
    verdicts = " / ".join(one.found.verdict if one and one.found else ABSENT for one in passes)
    mark = f" {OLDER}" if (name, rows[0].x_name, str(x), config, gpu) in older else ""
    return f"| {name} | {rows[0].x_name}={x}{mark} | {' | '.join(cells)} | {memory} | {verdicts} |"


def _usual(rows: Sequence[Measurement]) -> int | float | str:
    """The measured x that is nearest to the default model's."""
    wanted = getattr(MODELS[DEFAULT_MODEL], MODEL_AXES.get(rows[0].x_name, ""), 4096)
    xs = {row.x_value for row in rows}
    return min(xs, key=lambda x: (abs(x - wanted) if isinstance(x, int | float) else 0, str(x)))


def _time(at: Mapping[tuple[str, str, str], Measurement], provider: str, mode: str) -> str:
    for metric, mark in zip(DEVICE_TIMES, ("", ALONE), strict=True):
        row = at.get((provider, metric, mode))
        if row is not None:
            return f"{row.y_value_50:.3f}{mark}"
    return ABSENT
