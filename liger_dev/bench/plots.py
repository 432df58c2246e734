"""CSV rows in, PNG files out: one a metric and mode, the metric over the size, a line a provider, its spread shaded."""

import json

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liger_dev.bench.csv import DEVICE_TIMES
from liger_dev.bench.csv import Measurement
from liger_dev.bench.roofline import least_times
from liger_dev.bench.roofline import place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which stay apart for colour-blind readers; markers keep lines apart in print.
STYLES = {
    "liger": ("#D55E00", "o"),
    "torch": ("#0072B2", "s"),
    "torch_compile": ("#009E73", "^"),
    "liger_kernel": ("#CC79A7", "D"),
}
BASELINES = set(STYLES) - {"liger"}
OTHER_STYLES = (("#E69F00", "v"), ("#56B4E9", "P"), ("#000000", "X"))
TITLES = {
    "speed": "call time",
    "device_time": "device time",
    "kernel_time": "device time",
    "memory": "peak memory",
    "bandwidth_share": "memory bandwidth",
}
AXIS_LABELS = {
    "speed": "time a call (ms)",
    "device_time": "time on the device (ms)",
    "kernel_time": "time on the device (ms)",
    "memory": "peak memory (MB)",
    "bandwidth_share": "share of copy bandwidth",
}
# A pull request shows an image about 900 pixels wide: at that width the text is as tall as the page's own.
SIZE_INCHES = (7.5, 4.5)
FAR_APART = 4
DPI = 120


def plot(rows: Sequence[Measurement], folder: Path) -> tuple[Path, ...]:
    """Draws `KERNEL_{metric}_{mode}.png` into `folder` for every metric and mode in `rows`, and returns their paths.

    Rows of several GPUs, sizes or dtypes can't share a picture: the configuration with the newest row is drawn. A mode
    that baselines alone have is left out: a loss that makes its gradients in forward has a full pass only.
    """
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for row in rows:
        metric = DEVICE_TIMES[0] if row.metric_name in DEVICE_TIMES else row.metric_name
        groups.setdefault((row.kernel_name, metric, row.kernel_operation_mode), []).append(row)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for (kernel, metric, mode), group in groups.items():
        path = folder / file_name(kernel, metric, mode)
        drawn = newest_configuration(group)
        if {row.kernel_provider for row in drawn} <= BASELINES:
            continue
        _save(draw(drawn, roof(drawn, rows)), path)
        paths.append(path)
    return tuple(paths)


def file_name(kernel: str, metric: str, mode: str) -> str:
    return f"{kernel}_{metric}_{mode}.png"


def plot_roofline(rows: Sequence[Measurement], path: Path) -> Path:
    """Draws all kernels' shares of the copy bandwidth into one PNG file, and returns its path."""
    _save(draw_roofline(rows), path)
    return path


def _save(figure: "Figure", path: Path) -> None:
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def roof(drawn: Sequence[Measurement], rows: Sequence[Measurement]) -> dict[int | float | str, float]:
    """The least time at each x of a picture of times; empty for one of anything else."""
    if drawn[0].metric_name not in ("speed", *DEVICE_TIMES):
        return {}
    least = least_times(rows)
    return {row.x_value: least[place(row)] for row in drawn if place(row) in least}


def newest_configuration(rows: Sequence[Measurement]) -> list[Measurement]:
    """The rows that share GPU, fixed sizes and x axis with the newest one."""

    def setting(row: Measurement) -> tuple[str, str, str]:
        return row.gpu_name, row.extra_benchmark_config_str, row.x_name

    newest = max(rows, key=lambda row: row.timestamp)
    return [row for row in rows if setting(row) == setting(newest)]


def draw(rows: Sequence[Measurement], least: Mapping[int | float | str, float] = {}) -> "Figure":
    """The picture of one metric and mode in one configuration; `least` is the roofline, a value an x."""
    # matplotlib takes 0.3 s to import, which only those pay who draw.
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    places = x_places(rows)
    for number, provider in enumerate(providers_in_order(rows)):
        color, marker = STYLES.get(provider, OTHER_STYLES[number % len(OTHER_STYLES)])
        line = sorted((row for row in rows if row.kernel_provider == provider), key=lambda row: places[row.x_value])
        xs = [places[row.x_value] for row in line]
        lows, highs = [row.y_value_20 for row in line], [row.y_value_80 for row in line]
        label = f"{provider}, kernels alone" if line[0].metric_name == "kernel_time" else provider
        axes.plot(xs, [row.y_value_50 for row in line], color=color, marker=marker, label=label, linewidth=2)
        axes.fill_between(xs, lows, highs, color=color, alpha=0.2, linewidth=0)
    if line_of_roof := sorted((places[x], value) for x, value in least.items() if x in places):
        axes.plot(
            *zip(*line_of_roof, strict=True),
            color="#555555",
            linestyle="--",
            linewidth=1.2,
            label="roofline",
        )
    axes.set_xticks(list(places.values()), [str(x) for x in places])
    _label(axes, rows[0], _apart(rows))
    return figure


def providers_in_order(rows: Sequence[Measurement]) -> list[str]:
    """The providers that occur: the known ones in their usual order, then the others by name."""
    found = {row.kernel_provider for row in rows}
    return [*(name for name in STYLES if name in found), *sorted(found - set(STYLES))]


def x_places(rows: Sequence[Measurement]) -> dict[int | float | str, int]:
    """Where each x stands on the axis: evenly spaced, since sizes double from one to the next, or are models' names."""
    xs = sorted(
        {row.x_value for row in rows}, key=lambda x: (isinstance(x, str), x if not isinstance(x, str) else 0, str(x))
    )
    return {x: place for place, x in enumerate(xs)}


def _apart(rows: Sequence[Measurement]) -> bool:
    """Whether providers differ so much at one x that the fast ones would share one line at the bottom."""
    if rows[0].metric_name == "bandwidth_share":
        return False
    at: dict[int | float | str, list[float]] = {}
    for row in rows:
        at.setdefault(row.x_value, []).append(row.y_value_50)
    return any(0 < min(values) * FAR_APART < max(values) for values in at.values())


def _label(axes: "Axes", row: Measurement, apart: bool) -> None:
    config = json.loads(row.extra_benchmark_config_str or "{}")
    fixed = ", ".join(f"{name}={value}" if name != "dtype" else str(value) for name, value in config.items())
    what = TITLES.get(row.metric_name, row.metric_name)
    axes.set_title(f"{row.kernel_name} {row.kernel_operation_mode}: {what}", loc="left", fontweight="bold", pad=24)
    axes.text(0, 1.025, f"{row.gpu_name}, {fixed}", transform=axes.transAxes, fontsize=9, color="#555555")
    axes.set_xlabel(f"{row.x_label} ({row.x_name})")
    axes.set_ylabel(AXIS_LABELS.get(row.metric_name, f"{row.metric_name} ({row.metric_unit})"))
    if apart:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0, top=1.05 if row.metric_name == "bandwidth_share" else None)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title="median, 20 to 80 % shaded", title_fontsize=8, alignment="left")


def draw_roofline(rows: Sequence[Measurement]) -> "Figure":
    """All kernels in one picture: each pass's share of the copy bandwidth at the kernel's largest x, a dot a provider.

    Every kernel here moves bytes rather than computes, so the bandwidth is the roof of each.
    """
    from matplotlib.figure import Figure

    shares = [row for row in rows if row.metric_name == "bandwidth_share"]
    assert shares, "there are shares to draw"
    kernels = sorted({row.kernel_name for row in shares}, reverse=True)
    modes = [
        mode for mode in ("forward", "backward", "full") if any(row.kernel_operation_mode == mode for row in shares)
    ]
    figure = Figure(figsize=(3.6 * len(modes) + 1.6, 0.36 * len(kernels) + 1.7), layout="constrained")
    panels = figure.subplots(1, len(modes), sharey=True, squeeze=False)[0]
    sizes = {name: _at_largest([row for row in shares if row.kernel_name == name]) for name in kernels}
    for axes, mode in zip(panels, modes, strict=True):
        largest = [row for rows in sizes.values() for row in rows if row.kernel_operation_mode == mode]
        for number, provider in enumerate(reversed(providers_in_order(shares))):
            color, marker = STYLES.get(provider, OTHER_STYLES[number % len(OTHER_STYLES)])
            own = [row for row in largest if row.kernel_provider == provider]
            ys = [kernels.index(row.kernel_name) for row in own]
            axes.plot([row.y_value_50 for row in own], ys, marker, color=color, label=provider, markersize=6)
        axes.axvline(1, color="#555555", linestyle="--", linewidth=1.2)
        axes.set_title(mode, loc="left", fontweight="bold")
        axes.set_xlim(0, 1.05)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
        axes.grid(color="#DDDDDD", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    labels = [f"{name} ({rows[0].x_name}={rows[0].x_value})" for name, rows in sizes.items()]
    panels[0].set_yticks(range(len(kernels)), labels)
    panels[0].set_ylim(-0.6, len(kernels) - 0.4)
    figure.suptitle(f"Share of the measured copy bandwidth, {shares[-1].gpu_name}", x=0.01, ha="left", fontsize=11)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _at_largest(own: Sequence[Measurement]) -> list[Measurement]:
    """A kernel's rows at the largest x that any of its passes was measured at."""
    newest = newest_configuration(own)
    places = x_places(newest)
    last = max(places.values())
    return [row for row in newest if places[row.x_value] == last]
