"""All kernels' rows and samples in, a Markdown file out: every size and pass against every baseline and the memory's floor."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set

from liger_dev.bench.comparing import CANDIDATE
from liger_dev.bench.comparing import TIMES
from liger_dev.bench.comparing import Timed
from liger_dev.bench.comparing import alone_in_words
from liger_dev.bench.comparing import timed
from liger_dev.bench.csv import DEVICE_TIMES
from liger_dev.bench.csv import Measurement
from liger_dev.bench.plots import providers_in_order
from liger_dev.bench.plots import x_places
from liger_dev.bench.roofline import Place
from liger_dev.bench.roofline import least_times
from liger_dev.bench.roofline import place
from liger_dev.bench.samples import Sampled
from liger_dev.bench.statistics import MARGIN
from liger_dev.bench.statistics import MARGINS
from liger_dev.bench.table import ABSENT
from liger_dev.bench.table import ALONE
from liger_dev.bench.table import MODES
from liger_dev.bench.table import OLDER
from liger_dev.bench.table import TITLES
from liger_dev.bench.table import Size
from liger_dev.bench.table import newest_of_each
from liger_dev.bench.table import older_in_words
from liger_dev.bench.table import origin

_VERDICTS = ("faster", "same", "slower", "inconclusive")


def full(
    rows: Sequence[Measurement],
    samples: Sequence[Sampled],
    noise: Sequence[Sampled],
    older: Set[Size] = frozenset(),
) -> str:
    """The whole file. `noise` are the samples of kernels against themselves; those of other op files are left out. The
    sizes in `older` are marked."""
    ops = {one.under.op for one in samples}
    kept = [row for own in newest_of_each(rows).values() for row in own if row.kernel_provider in TITLES]
    passes = _passes(kept)
    found = {(one.metric, *_place(one)): one for one in timed(samples)}
    shown = [one for at in passes for metric in TIMES if (one := found.get((metric, *map(str, at)))) and one.found]
    lines = [
        "# Measurements",
        "",
        f"{origin(kept, samples)}. Medians; bfloat16; new values in the inputs and an overwritten L2 cache before each "
        "sample. Ratios are generated / fastest baseline with their 95 % bootstrap interval, and the verdict is that of "
        f"the interval, with {100 * MARGIN:.0f} % for no difference of device times and {100 * MARGINS['speed']:.0f} % of call times. "
        f"{ABSENT}: no such op, or one that fails there.{older_in_words(older)} Written by "
        "`liger-dev report --full-table`.",
        "",
        *_counts(shown),
        *_against_itself([one for one in noise if one.under.op in ops]),
        "## Device time",
        "",
        "In ms, of the replay of a CUDA graph. Floor: the fewest bytes that any provider's pass moves, over the copy "
        "bandwidth measured beside it.",
        "",
        *_table(passes, kept, DEVICE_TIMES, _of_floor(passes, kept), found, older),
        "",
        *_alone(shown),
        "## Call time",
        "",
        "In ms, from the Python call to the end of its work on the device: at small sizes what launching costs.",
        "",
        *_table(passes, kept, ("speed",), {}, found, older),
        "",
        "## Memory",
        "",
        "Peak of the pass in MB, its inputs included.",
        "",
        *_table(passes, kept, ("memory",), {}, {}, older),
    ]
    return "\n".join(lines) + "\n"


def _place(one: Timed) -> tuple[str, ...]:
    """As `roofline.place` has it, in text."""
    return one.kernel, one.mode, one.gpu, one.config, one.x_name, one.x


def _passes(rows: Sequence[Measurement]) -> list[Place]:
    """The places that the generated kernel was measured at, by kernel, size and mode."""
    order = x_places(rows)
    own = {place(row): row for row in rows if row.kernel_provider == CANDIDATE}
    return sorted(
        own, key=lambda at: (at[0], order[own[at].x_value], MODES.index(own[at].kernel_operation_mode), at[2:5])
    )


def _of_floor(passes: Sequence[Place], rows: Sequence[Measurement]) -> dict[Place, float]:
    least = least_times(rows)
    return {at: least[at] for at in passes if at in least}


def _counts(shown: Sequence[Timed]) -> Iterator[str]:
    """How often each verdict was given; then what is slower, by kernel."""
    yield "| Against the fastest baseline | passes | " + " | ".join(_VERDICTS) + " |"
    yield f"|---|{'---:|' * (len(_VERDICTS) + 1)}"
    for metric, title in TIMES.items():
        words = [one.found.verdict for one in shown if one.metric == metric and one.found]
        yield f"| {title} | {len(words)} | " + " | ".join(str(words.count(word)) for word in _VERDICTS) + " |"
    yield ""
    for metric, title in TIMES.items():
        slower: dict[str, list[str]] = {}
        for one in shown:
            if one.metric == metric and one.found and one.found.verdict == "slower":
                told = f"{one.mode} at {one.x_name}={one.x} ({one.found.ratio:.2f})"
                slower.setdefault(one.kernel, []).append(told)
        if slower:
            yield f"Slower by {title}, with the ratio:"
            yield ""
            yield from (f"- {kernel}: {', '.join(passes)}" for kernel, passes in slower.items())
            yield ""


def _against_itself(noise: Sequence[Sampled]) -> Iterator[str]:
    found = [one for one in timed(noise) if one.found]
    if not found:
        return
    yield "## The kernel against itself"
    yield ""
    yield "| kernel | size | pass | time | ratio (95 % interval) | verdict |"
    yield "|---|---|---|---|---:|---|"
    for one in found:
        yield f"| {one.kernel} | {one.x_name}={one.x} | {one.mode} | {TIMES[one.metric]} | {_ratio(one)} |"
    yield ""


def _alone(shown: Sequence[Timed]) -> Iterator[str]:
    for sentence in alone_in_words([one for one in shown if one.alone]):
        yield f"{ALONE} {sentence}"
        yield ""


def _table(
    passes: Sequence[Place],
    rows: Sequence[Measurement],
    metrics: Sequence[str],
    floors: Mapping[Place, float],
    found: Mapping[tuple[str, ...], Timed],
    older: Set[Size],
) -> Iterator[str]:
    """One metric's table; a column for the floor and one for the comparison where there are any."""
    figure: Callable[[float], str] = "{:.1f}".format if "memory" in metrics else "{:.4f}".format
    providers = providers_in_order([row for row in rows if row.metric_name in metrics])
    cells = {
        (place(row), row.kernel_provider): figure(row.y_value_50) + ("" if row.metric_name == metrics[0] else ALONE)
        for row in sorted(rows, key=lambda row: row.metric_name == metrics[0])
        if row.metric_name in metrics
    }
    head = ["kernel", "size", "pass", *(TITLES[name] for name in providers), *(["floor"] if floors else [])]
    yield f"| {' | '.join([*head, *(['ratio (95 % interval)', 'verdict'] if found else [])])} |"
    yield f"|---|---|---|{'---:|' * (len(head) - 3)}{'---:|---|' if found else ''}"
    for at in passes:
        kernel, mode, gpu, config, x_name, x = map(str, at)
        mark = f" {OLDER}" if (kernel, x_name, x, config, gpu) in older else ""
        line = [kernel, f"{x_name}={x}{mark}", mode, *(cells.get((at, name), ABSENT) for name in providers)]
        if floors:
            line.append(figure(floors[at]) if at in floors else ABSENT)
        if found:
            one = found.get((metrics[0], *map(str, at)))
            line.append(_ratio(one) if one and one.found else f"{ABSENT} | {ABSENT}")
        if (at, CANDIDATE) in cells:
            yield f"| {' | '.join(line)} |"


def _ratio(one: Timed) -> str:
    """Two cells: the ratio with its interval, the verdict."""
    assert one.found is not None, "shown are those that were compared"
    return f"{one.found.ratio:.3f} ({one.found.low:.3f} to {one.found.high:.3f}) | {one.found.verdict}"
