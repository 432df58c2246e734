"""Stands in for an op's `tuned`: sees what each launch looks up, and answers with what is being tried."""

import importlib

from dataclasses import dataclass
from dataclasses import field
from typing import Any

import torch


@dataclass(frozen=True)
class Seen:
    """What a kernel's launch looked up: a dtype's name, a size (columns, or elements), and the default settings."""

    kernel: str
    phase: str
    dtype: str
    size: int
    default: dict[str, int]


@dataclass
class Lookups:
    """The lookups of one op whose every kernel asks. `knobs` names each kernel's settings in the order of its lookup.

    `seen` collects the lookups by kernel, `tried` holds what a kernel is to be launched with instead of its default.
    """

    knobs: dict[str, tuple[str, ...]]
    seen: dict[str, Seen] = field(default_factory=dict)
    tried: dict[str, dict[str, int]] = field(default_factory=dict)
    phase: str = "forward"

    def __call__(self, table: Any, x: torch.Tensor, size: int, default: tuple[int, ...]) -> tuple[int, ...]:
        (kernel,) = table
        names = self.knobs[kernel]
        dtype = str(x.dtype).removeprefix("torch.")
        self.seen.setdefault(kernel, Seen(kernel, self.phase, dtype, size, dict(zip(names, default, strict=True))))
        return tuple(self.tried[kernel].values()) if kernel in self.tried else default


def installed(name: str, tunable: dict[str, dict[str, Any]]) -> Lookups:
    """Lookups in the place of `tuned` in the module `kernels.ops.NAME`. `tunable` has each kernel's knobs."""
    lookups = Lookups({kernel: tuple(one["knobs"]) for kernel, one in tunable.items()})
    vars(importlib.import_module(f"kernels.ops.{name}"))["tuned"] = lookups
    return lookups
