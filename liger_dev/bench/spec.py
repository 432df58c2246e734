"""What a benchmark script states, and what the measurements at one x share: the records of a benchmark."""

import inspect

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch

from liger_dev.bench.passes import Provider
from liger_dev.bench.sweeps import Sweep
from liger_dev.errors import BadInput

METRICS = ("speed", "device_time", "memory")
UNITS = {"speed": "ms", "device_time": "ms", "kernel_time": "ms", "memory": "MB", "bandwidth_share": "1"}
CANDIDATE = "liger"
REFERENCE = "torch"

Report = Callable[[str], None]


class Spoiled(Exception):
    """A provider left the process unfit to measure in: a new one has to go on, and leave out what did it.

    `option` is what that one is told: `--no-replay` of the provider after a failed capture, which leaves the random
    generator and the allocator believing that they are still in it, or `--without` it at an x where it broke the device.
    """

    def __init__(self, option: str, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.option, self.what, self.reason = option, what, reason


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
    `no_replay` and `without` are as in the script's options.
    """

    spec: BenchmarkSpec
    sweep: Sweep
    dtype: str
    modes: tuple[str, ...]
    metrics: tuple[str, ...]
    bandwidth: float
    budget_s: float
    report: Report
    no_replay: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)

    def providers(self, x: int | str) -> dict[str, Provider]:
        """Those that are there and not left out at x."""
        found = self.spec.providers.items()
        return {name: one for name, one in found if one is not None and f"{name}@{x}" not in self.without}


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
