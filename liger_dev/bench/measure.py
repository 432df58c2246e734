"""A benchmark's spec and one x in, the samples of every provider, mode and metric at that x out."""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Sequence
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
from liger_dev.bench.kernel_time import kernel_times
from liger_dev.bench.limits import bytes_moved
from liger_dev.bench.limits import fewest
from liger_dev.bench.memory import available_megabytes
from liger_dev.bench.memory import free_unused
from liger_dev.bench.memory import peak_megabytes
from liger_dev.bench.memory import split_by_fit
from liger_dev.bench.passes import Pass
from liger_dev.bench.passes import Provider
from liger_dev.bench.passes import eager_pass
from liger_dev.bench.roofline import check_share
from liger_dev.bench.roofline import share
from liger_dev.bench.spec import CANDIDATE
from liger_dev.bench.spec import REFERENCE
from liger_dev.bench.spec import Series
from liger_dev.bench.spec import Setting
from liger_dev.bench.spec import Spoiled
from liger_dev.bench.spec import make_inputs
from liger_dev.bench.timing import MAX_SAMPLES
from liger_dev.bench.timing import graph_pass
from liger_dev.bench.timing import time_interleaved
from liger_dev.errors import KernelFailed
from liger_dev.errors import LigerDevError


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
    """One pass of every provider: what it compiles is on disk, and need not be compiled again when it is measured.

    Raises:
        Spoiled: a provider can't be captured, which had better be known before anyone waits for the device.
    """
    torch.compiler.reset()
    mode = "forward" if setting.modes == ("forward",) else "full"
    point = _Point(setting, x)
    point.each("compiling", lambda function: _run_once(eager_pass(function, point.inputs(), mode)))
    # What can't be captured at one size can't be at another.
    if "device_time" in setting.metrics and x == next(iter(setting.sweep.points)):
        point.each(
            "device_time", lambda function: graph_pass(function, point.inputs(), mode), except_for=setting.no_replay
        )
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
    for name in point.left_out:
        setting.report(f"{name} is left out ({point.where('measuring')}): {setting.without[f'{name}@{x}']}")
    for name in (name for name in setting.no_replay if name in point.providers):
        setting.report(
            f"{name} can't be replayed ({point.where('measuring')}), so its kernels are timed one by one: {setting.no_replay[name]}"
        )
    point.check_baselines()
    moved = point.bytes_moved()
    for mode in setting.modes:
        if "memory" in setting.metrics:
            series += point.memory(mode)
        if "speed" in setting.metrics:
            series += point.times("speed", mode, eager_pass, moved)
        if "device_time" in setting.metrics:
            series += point.times("device_time", mode, graph_pass, moved, except_for=setting.no_replay)
            series += point.kernel_times(mode, moved)
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

    @property
    def providers(self) -> dict[str, Provider]:
        return self.setting.providers(self.x)

    @property
    def left_out(self) -> list[str]:
        return [name for name in self.setting.spec.providers if f"{name}@{self.x}" in self.setting.without]

    def each(self, doing: str, work: Callable[[Provider], Any], except_for: Container[str] = ()) -> dict[str, Any]:
        """What `work` returns for each provider that it succeeds for. One that fails is left out from then on.

        Raises:
            Spoiled: a baseline, or any provider's capture, left this process unfit.
        """
        results = {}
        for name, function in self.providers.items():
            if name in self.failed or name in except_for:
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
        reason = _first_reason(error)
        if doing == "device_time":
            raise Spoiled("--no-replay", name, reason) from error
        if doing == "kernel_time":
            self.setting.report(f"{name} has no device time ({self.where(doing)}): {reason}")
            return
        if name == CANDIDATE:
            raise KernelFailed(
                f"the kernel fails: {reason}", self.where(doing), "run its tests at this size"
            ) from error
        self.setting.report(f"{name} fails and is left out ({self.where(doing)}): {reason}")
        self.failed.add(name)
        if not is_fit():
            raise Spoiled("--without", f"{name}@{self.x}", reason) from error

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
        providers = self.providers
        if CANDIDATE in providers and REFERENCE in providers and REFERENCE not in self.failed:
            inputs = self.inputs()
            with torch.no_grad():
                check_outputs(providers[CANDIDATE], providers[REFERENCE], inputs, self.where("checking"))
                check_streams(providers[CANDIDATE], inputs, self.where("checking"))

    def bytes_moved(self) -> dict[str, int]:
        modes = self.setting.modes
        counts = self.each("counting bytes", lambda function: bytes_moved(function, self.inputs(), modes))
        for name, count in counts.items():
            if "backward" in modes and "backward" not in count:
                self.setting.report(f"{name} has its gradients from forward, so that its full pass alone is measured")
                self.shares_work.update({(name, "forward"), (name, "backward")})
        return fewest(counts.values())

    def memory(self, mode: str) -> list[Series]:
        peaks = self.each("memory", lambda one: peak_megabytes(lambda: eager_pass(one, self.inputs(), mode)))
        return [Series(name, mode, "memory", tuple(values)) for name, values in peaks.items()]

    def times(
        self,
        metric: str,
        mode: str,
        build: Callable[[Provider, tuple[Any, ...], str], Pass],
        moved: Mapping[str, int],
        except_for: Container[str] = (),
    ) -> list[Series]:
        free_unused()
        no_pass = {name for name, shared in self.shares_work if shared == mode}
        left_out = {name for name in self.providers if name in no_pass or name in except_for}
        ready = self.each(metric, lambda function: _run_once(build(function, self.inputs(), mode)), left_out)
        at_most = MAX_SAMPLES[metric]
        seed = self.setting.sweep.elements(self.x)
        samples = time_interleaved(ready, seed=seed, budget_s=self.setting.budget_s, at_most=at_most)
        series = [Series(name, mode, metric, tuple(values)) for name, values in samples.items()]
        self._check(series, moved)
        if mode not in moved:
            return series
        if metric == "device_time":
            series += [self._shares(one, moved[mode]) for one in list(series)]
        return series

    def kernel_times(self, mode: str, moved: Mapping[str, int]) -> list[Series]:
        """What the kernels take of those providers whose pass can't be replayed."""
        others = [name for name in self.providers if name not in self.setting.no_replay]
        no_pass = [name for name, shared in self.shares_work if shared == mode]
        free_unused()
        found = self.each(
            "kernel_time", lambda one: kernel_times(eager_pass(one, self.inputs(), mode)), (*others, *no_pass)
        )
        series = [Series(name, mode, "kernel_time", tuple(values)) for name, values in found.items()]
        self._check(series, moved)
        return series

    def _check(self, series: Sequence[Series], moved: Mapping[str, int]) -> None:
        """Raises ImpossibleFigure for a time in which the pass's bytes can't be moved."""
        for one in series:
            if one.mode in moved:
                where = f"{one.provider}, {one.mode}, {self.where(one.metric)}"
                check_share(moved[one.mode], median(one.samples), self.setting.bandwidth, where)

    def _shares(self, one: Series, size: int) -> Series:
        shares = tuple(share(size, milliseconds, self.setting.bandwidth) for milliseconds in one.samples)
        return Series(one.provider, one.mode, "bandwidth_share", shares)


def _first_reason(error: BaseException) -> str:
    """The first line of what went wrong first: what a failed capture says at its end is that it has failed."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_fit() -> bool:
    """Whether random numbers can still be drawn on the device, which an illegal access or an open capture prevents."""
    try:
        torch.randn(1, device="cuda")
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
