"""All kernels' rows and samples in, one Markdown table of device times against every baseline out."""

import re

from collections.abc import Mapping
from collections.abc import Sequence

from liger_dev.bench.csv import Measurement
from liger_dev.bench.models import DEFAULT_MODEL
from liger_dev.bench.models import MODELS
from liger_dev.bench.plots import newest_configuration
from liger_dev.bench.plots import providers_in_order
from liger_dev.bench.samples import Sampled
from liger_dev.bench.statistics import compare_with_fastest
from liger_dev.bench.sweeps import MODEL_AXES
from liger_dev.errors import BadInput

MODES = ("forward", "backward", "full")
TITLES = {"liger": "generated", "torch": "eager", "torch_compile": "torch.compile", "liger_kernel": "liger-kernel"}
BEGIN, END = "<!-- measurements: liger-dev report --table -->", "<!-- end of measurements -->"
_ABSENT = "–"


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


def table(rows: Sequence[Measurement], samples: Sequence[Sampled]) -> list[str]:
    """A row a kernel, at the size of the default model or the nearest that was measured, in its newest configuration.

    A cell is the median device time in ms of forward, backward and full pass; the last column says how the kernel
    compares with the fastest baseline of each.
    """
    kernels = sorted({row.kernel_name for row in rows})
    newest = {name: newest_configuration([row for row in rows if row.kernel_name == name]) for name in kernels}
    providers = providers_in_order([row for own in newest.values() for row in own if row.kernel_provider in TITLES])
    head = [TITLES.get(name, name) for name in providers]
    lines = [
        f"| kernel | size | {' | '.join(head)} | memory (MB) | against the fastest |",
        f"|---|---|{'---:|' * len(head)}---:|---|",
    ]
    return lines + [_line(name, newest[name], providers, samples) for name in kernels]


def caption(rows: Sequence[Measurement], samples: Sequence[Sampled]) -> str:
    """One sentence: which GPU, when, with which versions."""
    dates = sorted({row.timestamp[:10] for row in rows})
    versions: dict[str, str] = {}
    for one in samples:
        versions.update(one.under.versions)
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    gpus = ", ".join(sorted({row.gpu_name for row in rows}))
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (
        f"{gpus}, {span}; {told}. Median device time in ms, forward / backward / full, bfloat16, L2 cache flushed; peak "
        f"memory of a full pass beside eager's. The verdict is the 95 % interval's against the fastest baseline. "
        f"{_ABSENT}: no such op, or no time of its own."
    )


def _line(name: str, rows: Sequence[Measurement], providers: Sequence[str], samples: Sequence[Sampled]) -> str:
    x = _usual(rows)
    at = {(row.kernel_provider, row.metric_name, row.kernel_operation_mode): row for row in rows if row.x_value == x}
    cells = [" / ".join(_time(at, provider, mode) for mode in MODES) for provider in providers]
    own, eager = (at.get((provider, "memory", "full")) for provider in ("liger", "torch"))
    memory = f"{own.y_value_50:.0f} ({eager.y_value_50:.0f})" if own and eager else _ABSENT
    verdicts = " / ".join(_verdict(rows[0], x, mode, samples) for mode in MODES)
    return f"| {name} | {rows[0].x_name}={x} | {' | '.join(cells)} | {memory} | {verdicts} |"


def _usual(rows: Sequence[Measurement]) -> int | float | str:
    """The measured x that is nearest to the default model's."""
    wanted = getattr(MODELS[DEFAULT_MODEL], MODEL_AXES.get(rows[0].x_name, ""), 4096)
    xs = {row.x_value for row in rows}
    return min(xs, key=lambda x: (abs(x - wanted) if isinstance(x, int | float) else 0, str(x)))


def _time(at: Mapping[tuple[str, str, str], Measurement], provider: str, mode: str) -> str:
    row = at.get((provider, "device_time", mode))
    return _ABSENT if row is None else f"{row.y_value_50:.3f}"


def _verdict(row: Measurement, x: int | float | str, mode: str, samples: Sequence[Sampled]) -> str:
    setting = (row.kernel_name, mode, "device_time", row.x_name, str(x), row.extra_benchmark_config_str, row.gpu_name)
    times = {one.provider: one.samples for one in samples if (one.key[0], *one.key[2:]) == setting}
    found = compare_with_fastest("liger", times)
    return _ABSENT if found is None else found.verdict
