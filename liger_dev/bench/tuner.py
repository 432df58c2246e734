"""`python -m liger_dev.bench.tuner REQUEST.json OUT.jsonl`: an op whose launches ask for settings in, a line for each measured point out.

Progress goes to standard output. Settings that leave the process unfit for the device are written into the request, and
a new process goes on. Exit codes: 0 all points are measured; 4 the budget was spent before.
"""

import importlib
import json
import sys
import time

from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from liger_dev import tuned_points
from liger_dev.bench import ahead
from liger_dev.bench.ahead import Compilers
from liger_dev.bench.climbing import Climb
from liger_dev.bench.climbing import Settings
from liger_dev.bench.climbing import Untimed
from liger_dev.bench.climbing import climb
from liger_dev.bench.climbing import neighbours
from liger_dev.bench.device import device_lock
from liger_dev.bench.harness import go_on
from liger_dev.bench.honesty import distance
from liger_dev.bench.lookups import Lookups
from liger_dev.bench.lookups import Seen
from liger_dev.bench.lookups import installed
from liger_dev.bench.measure import is_fit
from liger_dev.bench.memory import free_unused
from liger_dev.bench.passes import Pass
from liger_dev.bench.passes import differentiable
from liger_dev.bench.passes import gradient_leaves
from liger_dev.bench.passes import random_gradients
from liger_dev.bench.spec import CANDIDATE
from liger_dev.bench.spec import BenchmarkSpec
from liger_dev.bench.spec import make_inputs
from liger_dev.bench.timing import graph_pass
from liger_dev.bench.timing import time_interleaved
from liger_dev.errors import LIMIT_REACHED
from liger_dev.errors import PASSED
from liger_dev.errors import KernelFailed
from liger_dev.errors import LigerDevError
from liger_dev.tuned_points import Key
from liger_dev.tuned_points import bucket
from liger_dev.tuned_points import key_of

_TritonError: Any = importlib.import_module("triton.errors").TritonError

# Seconds a setting for more than twenty samples: when many are compared, and when two are.
_QUICK_S, _LAST_S = 0.0, 0.5
# Another order of a sum moves a result by some units in the last place; of the largest value that is a small share.
_LEAST_AGREEMENT = 1e-4


@dataclass(frozen=True)
class Point:
    """One kernel at one size on this device, and the sizes of the benchmark that lead to it."""

    seen: Seen
    body: str
    sizes: dict[str, int]

    @property
    def name(self) -> str:
        unit = "elements" if "block_size" in self.seen.default else "columns"
        return f"{self.seen.kernel}, {self.seen.size} {unit}, {self.seen.dtype}"


class Spent(Exception):
    """The budget of wall time is used up."""


class Unfit(Exception):
    """A kernel's settings have left this process unfit for the device: a capture that failed, or an illegal access."""

    def __init__(self, kernel: str, settings: Settings) -> None:
        super().__init__(f"{kernel} with {_in_words(settings)} leaves the process unfit")
        self.kernel, self.settings = kernel, settings


@dataclass(frozen=True)
class Clock:
    """When the budget ends, on the monotonic clock."""

    end: float

    def check(self) -> None:
        if time.monotonic() > self.end:
            raise Spent


def main(request_path: Path, out: Path) -> int:
    request = json.loads(request_path.read_text(encoding="utf-8"))
    sys.path.insert(0, request["root"])
    clock = Clock(time.monotonic() + request["budget"])
    compilers = ahead.compilers(ahead.Workplace(request["name"], request["root"], json.dumps(request["tunable"])))
    with compilers.pool:
        points = find_points(request, compilers)
        _say(f"{len(points)} points: {', '.join(dict.fromkeys(point.seen.kernel for point in points))}")
        try:
            for target in request["targets"]:
                prune(points, compilers, target, clock)
            if request["measure"]:
                measure(request, points, compilers, clock, out)
            return PASSED
        except Spent:
            _say("the budget is spent")
            return LIMIT_REACHED
        except Unfit as found:
            unfit = found
        except LigerDevError as error:
            print(error.what, file=sys.stderr)
            return error.exit_code
        finally:
            compilers.pool.shutdown(cancel_futures=True)  # waits: a new process could not end them
    _say(f"{unfit}; going on in a new process, without them")
    request_path.write_text(json.dumps(_without(unfit, request, clock, out)), encoding="utf-8")
    return go_on([sys.executable, *sys.orig_argv[1:]])


def _without(unfit: Unfit, request: dict[str, Any], clock: Clock, out: Path) -> dict[str, Any]:
    """What is left to do of a request."""
    measured = [tuned_points.key_of(line) for line in tuned_points.read(out)]
    return {
        **request,
        "budget": clock.end - time.monotonic(),
        "known": [*request["known"], *measured],
        "unfit": [*request["unfit"], [unfit.kernel, unfit.settings]],
    }


def find_points(request: dict[str, Any], compilers: Compilers) -> list[Point]:
    """Every kernel with open settings at every bucket of sizes, the largest first, which gain the most."""
    points: dict[tuple[Any, ...], Point] = {}
    sizes = [{**request["config"], request["x_name"]: x} for x in sorted(request["x_values"], reverse=True)]
    asked = [(own, compilers.look(json.dumps(own), dtype)) for own in sizes for dtype in request["dtypes"]]
    for own, looked in asked:
        for seen in looked.result():
            body = request["tunable"][seen.kernel]["body"]
            points.setdefault((seen.kernel, seen.dtype, bucket(seen.size)), Point(seen, body, own))
    return list(points.values())


def prune(points: Sequence[Point], compilers: Compilers, target: str, clock: Clock) -> None:
    """Says which settings near the default a target could run well: nothing is timed."""
    for point in points:
        clock.check()
        seen = point.seen
        near = neighbours(seen.default, seen.size)
        usual, *reasons = sift(point, compilers, target, [seen.default, *near])
        taken = compilers.ask(seen.kernel, json.dumps(point.sizes), seen.dtype, target, seen.default).result()
        _say(
            f"{target}: {point.name}: {_in_words(seen.default)} by default takes "
            f"{usual or f'{taken.registers} registers, {taken.spill_bytes} bytes spilled'}; "
            f"{reasons.count('')} of {len(near)} settings near it would be timed"
        )
        for settings, reason in zip(near, reasons, strict=True):
            if reason:
                _say(f"{target}: {point.name}: not {_in_words(settings)}: {reason}")


def sift(point: Point, compilers: Compilers, target: str, several: Sequence[Settings]) -> list[str]:
    """Why each of several settings is not worth timing on a target, "" if it is."""
    seen, sizes = point.seen, json.dumps(point.sizes)
    usual = compilers.ask(seen.kernel, sizes, seen.dtype, target, seen.default)
    asked = [compilers.ask(seen.kernel, sizes, seen.dtype, target, settings) for settings in several]
    return [ahead.reason(one.result(), settings, usual.result()) for one, settings in zip(asked, several, strict=True)]


def measure(request: dict[str, Any], points: Sequence[Point], compilers: Compilers, clock: Clock, out: Path) -> None:
    """Climbs at each point that `request` does not have yet, and appends what it found. Raises Spent."""
    name = request["name"]
    lookups = installed(name, request["tunable"])
    spec: BenchmarkSpec = importlib.import_module(f"benchmark_{name}").SPEC
    device = torch.device("cuda", torch.cuda.current_device())
    target = importlib.import_module("kernels.ops.utils").architecture(device)
    shared = {
        "gpu": torch.cuda.get_device_name(),
        "arch": target,
        "versions": {package: version(package) for package in ("torch", "triton")},
    }
    known = {tuple(key) for key in request["known"]}
    with device_lock():
        fit = [here for point in points if (here := _here(spec, point, lookups)) is not None]
        wanted = [point for point in fit if _key(point, shared) not in known]
        if len(wanted) < len(fit):
            _say(f"{len(fit) - len(wanted)} of {len(fit)} points were measured before")
        for point in wanted:
            for settings in neighbours(point.seen.default, point.seen.size):
                compilers.ask(point.seen.kernel, json.dumps(point.sizes), point.seen.dtype, target, settings)
        for number, point in enumerate(wanted, start=1):
            clock.check()
            unfit = [settings for kernel, settings in request["unfit"] if kernel == point.seen.kernel]
            found = _climbed(spec, point, lookups, compilers, target, clock, unfit)
            line = {**_identity(point, shared), "timestamp": time.strftime("%Y-%m-%d %H:%M:%S"), **_plain(found)}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            _say(f"{number} of {len(wanted)}: {point.name}: {_told(found)}")


def _identity(point: Point, shared: dict[str, Any]) -> dict[str, Any]:
    seen = point.seen
    names = {"kernel": seen.kernel, "body": point.body, "dtype": seen.dtype, "size": seen.size, "phase": seen.phase}
    return {**names, **shared, "sizes": point.sizes, "default": seen.default}


def _key(point: Point, shared: dict[str, Any]) -> Key:
    return key_of(_identity(point, shared))


def _inputs(spec: BenchmarkSpec, point: Point) -> tuple[Any, ...]:
    return make_inputs(spec, point.sizes, point.seen.dtype, "cuda")


def _function(spec: BenchmarkSpec) -> Any:
    return spec.providers[CANDIDATE]


def _here(spec: BenchmarkSpec, point: Point, lookups: Lookups) -> Point | None:
    """The point with the default of this very device; None if it does not fit there."""
    lookups.seen.clear()
    lookups.tried = {}
    try:
        _results(_function(spec), _inputs(spec, point))
    except torch.OutOfMemoryError:
        _say(f"{point.name}: left out, the device ran out of memory")
        return None
    return replace(point, seen=replace(point.seen, default=lookups.seen[point.seen.kernel].default))


def _climbed(
    spec: BenchmarkSpec,
    point: Point,
    lookups: Lookups,
    compilers: Compilers,
    target: str,
    clock: Clock,
    unfit: Sequence[Settings],
) -> Climb:
    """Raises Spent, Unfit, and KernelFailed where the default itself can't be timed."""
    kernel, function, inputs = point.seen.kernel, _function(spec), _inputs(spec, point)

    def passes(settings: Settings, wanted: Sequence[torch.Tensor | None]) -> Pass | None:
        lookups.tried = {kernel: settings}
        try:
            if not _agree(_results(function, inputs), wanted):
                return None
            return graph_pass(function, inputs, point.seen.phase)
        except (_TritonError, RuntimeError) as error:  # what a device refuses at the launch: threads, shared memory
            if settings != point.seen.default and not is_fit():
                raise Unfit(kernel, settings) from error
            return None
        finally:
            lookups.tried = {}

    def timer(several: Sequence[Settings], last: bool) -> list[list[float] | None]:
        clock.check()
        free_unused()
        wanted = _results(function, inputs)  # now, since timing has changed the inputs
        ready = {str(i): one for i, settings in enumerate(several) if (one := passes(settings, wanted)) is not None}
        samples = time_interleaved(ready, seed=point.seen.size, budget_s=_LAST_S if last else _QUICK_S)
        return [samples.get(str(i)) for i in range(len(several))]

    def sifted(several: Sequence[Settings]) -> list[str]:
        clock.check()
        reasons = sift(point, compilers, target, several)
        pairs = zip(several, reasons, strict=True)
        return ["leaves the process unfit" if settings in unfit else reason for settings, reason in pairs]

    try:
        return climb(point.seen.default, point.seen.size, sifted, timer)
    except Untimed:
        raise KernelFailed(f"{point.name}: no CUDA graph can replay its {point.seen.phase} pass by default") from None


def _results(function: Any, inputs: Sequence[Any]) -> list[torch.Tensor | None]:
    """Outputs and gradients, for upstream gradients that are the same at each call."""
    outputs = differentiable(function(*inputs))
    torch.manual_seed(1)
    found = torch.autograd.grad(outputs, gradient_leaves(inputs), random_gradients(outputs), allow_unused=True)
    return [*(output.detach() for output in outputs), *found]


def _agree(found: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor | None]) -> bool:
    pairs = [(one, other) for one, other in zip(found, wanted, strict=True) if one is not None and other is not None]
    return all(
        torch.equal(one, other) or distance(one, other) <= max(4 * torch.finfo(other.dtype).eps, _LEAST_AGREEMENT)
        for one, other in pairs
    )


def _plain(found: Climb) -> dict[str, Any]:
    data = asdict(found)
    for one in data["tried"]:
        one["samples"] = [float(f"{value:.6g}") for value in one["samples"]]
    return data


def _told(found: Climb) -> str:
    timed = sum(bool(one.samples) for one in found.tried)
    counts = f"{timed} timed, {len(found.tried) - timed} dropped"
    if found.best == found.default:
        return f"the default stays, {found.default_ms:.4f} ms ({counts})"
    return f"{_in_words(found.best)}: {found.ms:.4f} ms, {found.ratio:.3f} ({found.low:.3f} to {found.high:.3f}) of the default ({counts})"


def _in_words(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
