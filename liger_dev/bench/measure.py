"""A benchmark's spec and one x in, the samples of every provider, mode and metric at that x out."""

import inspect

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from statistics import median
from typing import Any

import torch

from liger_dev.bench.honesty import AGREEMENT
from liger_dev.bench.honesty import check_outputs
from liger_dev.bench.honesty import check_streams
from liger_dev.bench.honesty import distance
from liger_dev.bench.honesty import tensors
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
from liger_dev.bench.sweeps import Sweep
from liger_dev.bench.timing import graph_pass
from liger_dev.bench.timing import time_interleaved
from liger_dev.errors import BadInput
from liger_dev.errors import KernelFailed
from liger_dev.errors import LigerDevError

METRICS = ("speed", "device_time", "memory")
UNITS = {"speed": "ms", "device_time": "ms", "memory": "MB", "bandwidth_share": "1"}
CANDIDATE = "liger"
REFERENCE = "torch"

Report = Callable[[str], None]


@dataclass(frozen=True)
class BenchmarkSpec:
    """What a benchmark script states.

    Args:
        make_inputs: takes sizes by name, `dtype` and `device`; returns a provider's positional arguments.
        providers: functions of those arguments by name; `liger` is the one that is judged. None is not installed.
        x_name, x_label, x_values: the size that varies, what the plot's axis calls it, and its values.
        config: the sizes held fixed, by name, and the dtype's name under `dtype`.
        script: the script's `__file__`; rows go to `../data` beside it.
    """

    kernel_name: str
    make_inputs: Callable[..., tuple[Any, ...]]
    providers: Mapping[str, Provider | None]
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


@dataclass(frozen=True)
class Setting:
    """What all measurements of a sweep share.

    `bandwidth` is the device's copy bandwidth in bytes a second, `budget_s` the seconds that a provider's samples of
    one metric and mode may take beyond the twenty that it gets anyhow, `report` takes a sentence for the user.
    """

    spec: BenchmarkSpec
    sweep: Sweep
    dtype: str
    modes: tuple[str, ...]
    metrics: tuple[str, ...]
    bandwidth: float
    budget_s: float
    report: Report

    @property
    def providers(self) -> dict[str, Provider]:
        return {name: function for name, function in self.spec.providers.items() if function is not None}


def make_inputs(spec: BenchmarkSpec, sizes: Mapping[str, Any], dtype: str, device: str) -> tuple[Any, ...]:
    """A provider's own arguments, random and the same at each call. Raises BadInput for a size that nobody gives."""
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


def fitting(setting: Setting) -> tuple[tuple[int | str, ...], tuple[int | str, ...]]:
    """The x values whose passes fit into the device's free memory, judged by the smallest one, and the others."""
    sweep = setting.sweep
    mode = "forward" if setting.modes == ("forward",) else "full"
    smallest = min(sweep.points, key=sweep.elements)
    try:
        peaks = {one.provider: median(one.samples) for one in _Point(setting, smallest).memory(mode)}
    except torch.OutOfMemoryError:
        return (), tuple(sweep.points)
    growth = {x: sweep.elements(x) / sweep.elements(smallest) for x in sweep.points}
    return split_by_fit(growth, peaks, available_megabytes())


def compile_at(setting: Setting, x: int | str) -> None:
    """One pass of every provider: what it compiles is on disk, and need not be compiled again when it is measured."""
    torch.compiler.reset()
    mode = "forward" if setting.modes == ("forward",) else "full"
    point = _Point(setting, x)
    point.each("compiling", lambda function: _run_once(eager_pass(function, point.inputs(), mode)))
    free_unused()


def _run_once(one: Pass) -> Pass:
    one.prepare()
    one.call()
    torch.cuda.synchronize()
    return one


def measure_at(setting: Setting, x: int | str) -> list[Series]:
    """All series at one x. A baseline that fails is reported and left out; the candidate's failure is raised.

    Raises:
        ImpossibleFigure: a median time is shorter than the bandwidth allows.
        KernelFailed: the candidate does not run, or not what was timed.
        torch.OutOfMemoryError: this x does not fit after all.
    """
    # One compilation a size, as `dynamic=False` asks for: past eight of them torch.compile falls back to eager.
    torch.compiler.reset()
    point = _Point(setting, x)
    series: list[Series] = []
    point.check_baselines()
    moved = point.bytes_moved()
    for mode in setting.modes:
        if "memory" in setting.metrics:
            series += point.memory(mode)
        if "speed" in setting.metrics:
            series += point.times("speed", mode, eager_pass, moved)
        if "device_time" in setting.metrics:
            series += point.times("device_time", mode, graph_pass, moved)
    point.check_candidate()
    free_unused()
    return [one for one in series if (one.provider, one.mode) not in point.shares_work]


@dataclass(frozen=True)
class _Point:
    """One x of a sweep, with what every measurement there needs.

    `shares_work` are baselines' modes that say nothing, since their forward does what the reference's backward does.
    """

    setting: Setting
    x: int | str
    failed: set[str] = field(default_factory=set)
    shares_work: set[tuple[str, str]] = field(default_factory=set)

    def inputs(self) -> tuple[Any, ...]:
        return make_inputs(self.setting.spec, self.setting.sweep.points[self.x], self.setting.dtype, "cuda")

    def where(self, doing: str) -> str:
        return f"{doing}, {self.setting.sweep.x_name}={self.x}"

    def each(self, doing: str, work: Callable[[Provider], Any]) -> dict[str, Any]:
        """What `work` returns for each provider that it succeeds for.

        A provider that fails is left out from then on, or, if only its capture fails, of the device times.
        """
        results = {}
        for name, function in self.setting.providers.items():
            if name in self.failed:
                continue
            try:
                results[name] = work(function)
            except (torch.OutOfMemoryError, LigerDevError):
                raise
            # A crash becomes a verdict here: a kernel refuses sizes with an assertion, Triton with errors of its own.
            except Exception as error:
                self._give_up(name, doing, error)
        return results

    def _give_up(self, name: str, doing: str, error: Exception) -> None:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if doing == "device_time":
            self.setting.report(f"{name} has no device time ({self.where(doing)}): {reason}")
        elif name == CANDIDATE:
            raise KernelFailed(
                f"the kernel fails: {reason}", self.where(doing), "run its tests at this size"
            ) from error
        else:
            self.setting.report(f"{name} fails and is left out ({self.where(doing)}): {reason}")
            self.failed.add(name)

    def check_baselines(self) -> None:
        """Leaves out a baseline whose outputs are not the reference's: its time would be that of something else."""
        outputs = self.each("checking", lambda function: tensors(function(*self.inputs())))
        for name, found in outputs.items():
            if name == CANDIDATE or REFERENCE not in outputs:
                continue
            apart = max(distance(one, other) for one, other in zip(found, outputs[REFERENCE], strict=True))
            if not apart <= AGREEMENT:
                self.setting.report(
                    f"{name} is left out ({self.where('checking')}): its outputs are {apart:.2g} of the largest "
                    f"value away from those of {REFERENCE}"
                )
                self.failed.add(name)

    def check_candidate(self) -> None:
        """Raises KernelFailed if the candidate, now that it was timed, does not do its work."""
        providers = self.setting.providers
        if CANDIDATE in providers and REFERENCE in providers and REFERENCE not in self.failed:
            inputs = self.inputs()
            with torch.no_grad():
                check_outputs(providers[CANDIDATE], providers[REFERENCE], inputs, self.where("checking"))
                check_streams(providers[CANDIDATE], inputs, self.where("checking"))

    def bytes_moved(self) -> dict[str, int]:
        modes = self.setting.modes
        counts = self.each("counting bytes", lambda function: bytes_moved(function, self.inputs(), modes))
        for name, count in counts.items():
            if "backward" in modes and "backward" not in count and name != CANDIDATE:
                self.setting.report(f"{name} has its gradients from forward, so that its full pass alone is compared")
                self.shares_work.update({(name, "forward"), (name, "backward")})
        return fewest(counts.values())

    def memory(self, mode: str) -> list[Series]:
        peaks = self.each("memory", lambda one: peak_megabytes(lambda: eager_pass(one, self.inputs(), mode)))
        return [Series(name, mode, "memory", tuple(values)) for name, values in peaks.items()]

    def times(
        self, metric: str, mode: str, build: Callable[[Provider, tuple[Any, ...], str], Pass], moved: Mapping[str, int]
    ) -> list[Series]:
        free_unused()
        ready = self.each(metric, lambda function: _run_once(build(function, self.inputs(), mode)))
        kept = {name: one for name, one in ready.items() if (name, mode) not in self.shares_work}
        samples = time_interleaved(kept, seed=self.setting.sweep.elements(self.x), budget_s=self.setting.budget_s)
        series = [Series(name, mode, metric, tuple(values)) for name, values in samples.items()]
        if mode not in moved:
            return series
        for one in series:
            where = f"{one.provider}, {mode}, {self.where(metric)}"
            bandwidth_share(moved[mode], median(one.samples), self.setting.bandwidth, where)
        if metric == "device_time":
            series += [self._shares(one, moved[mode]) for one in list(series)]
        return series

    def _shares(self, one: Series, size: int) -> Series:
        shares = tuple(size / (milliseconds * 1e-3) / self.setting.bandwidth for milliseconds in one.samples)
        return Series(one.provider, one.mode, "bandwidth_share", shares)
