"""A benchmark's spec and one x in, the samples of every provider, mode and metric at that x out."""

import inspect

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from statistics import median
from typing import Any

import torch

from liger_dev.bench.limits import bandwidth_share
from liger_dev.bench.limits import bytes_moved
from liger_dev.bench.limits import fewest
from liger_dev.bench.memory import available_megabytes
from liger_dev.bench.memory import free_unused
from liger_dev.bench.memory import peak_megabytes
from liger_dev.bench.memory import split_by_fit
from liger_dev.bench.passes import Pass
from liger_dev.bench.passes import Provider
from liger_dev.bench.passes import eager_pass
from liger_dev.bench.timing import graph_pass
from liger_dev.bench.timing import time_interleaved
from liger_dev.errors import BadInput
from liger_dev.errors import KernelFailed

METRICS = ("speed", "device_time", "memory")
UNITS = {"speed": "ms", "device_time": "ms", "memory": "MB", "bandwidth_share": "1"}
CANDIDATE = "liger"

Report = Callable[[str], None]


@dataclass(frozen=True)
class BenchmarkSpec:
    """What a benchmark script states.

    Args:
        make_inputs: takes sizes by name, `dtype` and `device`; returns a provider's positional arguments.
        providers: functions of those arguments by name; `liger` is the one that is judged.
        x_name, x_label, x_values: the size that varies, what the plot's axis calls it, and its values.
        config: the sizes held fixed, by name, and the dtype's name under `dtype`.
        script: the script's `__file__`; rows go to `../data` beside it.
    """

    kernel_name: str
    make_inputs: Callable[..., tuple[Any, ...]]
    providers: Mapping[str, Provider]
    x_name: str
    x_label: str
    x_values: tuple[int, ...]
    config: Mapping[str, int | float | str]
    script: str


@dataclass(frozen=True)
class Series:
    """The samples of one provider, mode and metric at one x, in the metric's unit."""

    provider: str
    mode: str
    metric: str
    samples: tuple[float, ...]


def make_inputs(spec: BenchmarkSpec, x: int, dtype: str, device: str) -> tuple[Any, ...]:
    """A provider's own arguments, random and the same at each call. Raises BadInput for a size that nobody gives."""
    sizes = {**spec.config, spec.x_name: x}
    wanted = [name for name in inspect.signature(spec.make_inputs).parameters if name not in ("dtype", "device")]
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise BadInput(
            f"make_inputs takes the size '{missing[0]}', which neither config nor x_name gives",
            spec.script,
            "add it to benchmark_fixed_config in the profile",
        )
    torch.manual_seed(0)
    return spec.make_inputs(**{name: sizes[name] for name in wanted}, dtype=getattr(torch, dtype), device=device)


def fitting(
    spec: BenchmarkSpec, dtype: str, modes: Sequence[str], report: Report
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The x values whose passes fit into the device's free memory, judged by the smallest one, and the others."""
    mode = "forward" if tuple(modes) == ("forward",) else "full"
    probe = _Point(spec, min(spec.x_values), dtype, 0.0, report)
    try:
        peaks = {one.provider: median(one.samples) for one in probe.memory(mode)}
    except torch.OutOfMemoryError:
        return (), spec.x_values
    return split_by_fit(spec.x_values, peaks, available_megabytes())


def measure_at(
    spec: BenchmarkSpec,
    x: int,
    dtype: str,
    modes: Sequence[str],
    metrics: Sequence[str],
    bandwidth: float,
    report: Report,
) -> list[Series]:
    """All series at one x. A baseline that fails is reported and left out; the candidate's failure is raised.

    Args:
        bandwidth: the device's copy bandwidth in bytes a second.
        report: takes a sentence for the user.

    Raises:
        ImpossibleFigure: a median time is shorter than the bandwidth allows.
        KernelFailed: the candidate does not run.
        torch.OutOfMemoryError: this x does not fit after all.
    """
    # One compilation a size, as `dynamic=False` asks for: past eight of them torch.compile falls back to eager.
    torch.compiler.reset()
    point = _Point(spec, x, dtype, bandwidth, report)
    series: list[Series] = []
    if "memory" in metrics:
        series += [row for mode in modes for row in point.memory(mode)]
    if "speed" in metrics or "device_time" in metrics:
        moved = point.bytes_moved(modes)
        for mode in modes:
            if "speed" in metrics:
                series += point.times("speed", mode, eager_pass, moved)
            if "device_time" in metrics:
                series += point.times("device_time", mode, graph_pass, moved)
    free_unused()
    return series


@dataclass(frozen=True)
class _Point:
    """One x of a sweep, with what every measurement there needs."""

    spec: BenchmarkSpec
    x: int
    dtype: str
    bandwidth: float
    report: Report
    failed: set[str] = field(default_factory=set)

    def inputs(self) -> tuple[Any, ...]:
        return make_inputs(self.spec, self.x, self.dtype, "cuda")

    def each(self, doing: str, work: Callable[[Provider], Any]) -> dict[str, Any]:
        """What `work` returns for each provider that it succeeds for.

        A provider that fails is left out from then on, or, if only its capture fails, of the device times.
        """
        results = {}
        for name, function in self.spec.providers.items():
            if name in self.failed:
                continue
            try:
                results[name] = work(function)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._give_up(name, doing, error)
        return results

    def _give_up(self, name: str, doing: str, error: RuntimeError) -> None:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        where = f"{doing}, {self.spec.x_name}={self.x}"
        if doing == "device_time":
            self.report(f"{name} has no device time ({where}): {reason}")
        elif name == CANDIDATE:
            raise KernelFailed(f"the kernel fails: {reason}", where, "run its tests at this size") from error
        else:
            self.report(f"{name} fails and is left out ({where}): {reason}")
            self.failed.add(name)

    def bytes_moved(self, modes: Sequence[str]) -> dict[str, int]:
        counts = self.each("speed", lambda function: bytes_moved(function, self.inputs(), modes))
        return fewest(counts.values())

    def memory(self, mode: str) -> list[Series]:
        peaks = self.each("memory", lambda one: peak_megabytes(lambda: eager_pass(one, self.inputs(), mode)))
        return [Series(name, mode, "memory", tuple(values)) for name, values in peaks.items()]

    def times(
        self, metric: str, mode: str, build: Callable[[Provider, tuple[Any, ...], str], Pass], moved: Mapping[str, int]
    ) -> list[Series]:
        free_unused()

        def ready(function: Provider) -> Pass:
            one = build(function, self.inputs(), mode)
            one.prepare()
            one.call()
            torch.cuda.synchronize()
            return one

        samples = time_interleaved(self.each(metric, ready), seed=self.x)
        series = [Series(name, mode, metric, tuple(values)) for name, values in samples.items()]
        if mode not in moved:
            return series
        for one in series:
            where = f"{one.provider}, {mode}, {metric}, {self.spec.x_name}={self.x}"
            bandwidth_share(moved[mode], median(one.samples), self.bandwidth, where)
        if metric == "device_time":
            series += [self._shares(one, moved[mode]) for one in list(series)]
        return series

    def _shares(self, one: Series, size: int) -> Series:
        shares = tuple(size / (milliseconds * 1e-3) / self.bandwidth for milliseconds in one.samples)
        return Series(one.provider, one.mode, "bandwidth_share", shares)
