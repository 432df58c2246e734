"""A kernel, its settings and a target in, what they take when compiled out: in processes of their own, without a GPU."""

import importlib
import json
import multiprocessing
import os
import sys

from concurrent.futures import Future
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from liger_dev.axes import extent
from liger_dev.bench.lookups import Lookups
from liger_dev.bench.lookups import Seen
from liger_dev.bench.lookups import installed
from liger_dev.grading import compile_gate
from liger_dev.grading.resources import KernelResources
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile

Settings = dict[str, int]

# What a multiprocessor has for all programs that run on it at once: registers, and bytes of shared memory.
_REGISTERS = 65536
_SHARED = {"sm_80": 164 * 1024, "sm_90": 228 * 1024, "sm_100": 228 * 1024}


@dataclass(frozen=True)
class Workplace:
    """The op to compile: its name, the folder that holds `kernels` and `profiles`, and its tables as JSON."""

    name: str
    root: str
    tunable: str


@dataclass(frozen=True)
class Task:
    """One compilation: sizes by axis, as JSON, and the settings of one kernel (None: as it is by default)."""

    workplace: Workplace
    kernel: str
    sizes: str
    dtype: str
    target: str
    settings: tuple[tuple[str, int], ...] = ()


@lru_cache(maxsize=1)
def _loaded(workplace: Workplace) -> tuple[Any, KernelProfile, Lookups]:
    os.environ.pop("TRITON_INTERPRET", None)
    torch.set_num_threads(1)
    sys.path.insert(0, workplace.root)
    path = Path(workplace.root) / "profiles" / f"{workplace.name}.yaml"
    profile = parse_profile(path.read_text(encoding="utf-8"), str(path))
    lookups = installed(workplace.name, json.loads(workplace.tunable))
    op = importlib.import_module(f"kernels.ops.{workplace.name}")
    return getattr(op, profile.function_class_name), profile, lookups


def _recorded(
    workplace: Workplace, sizes: str, dtype: str, tried: dict[str, Settings]
) -> tuple[Lookups, list[compile_gate.Launch]]:
    function, profile, lookups = _loaded(workplace)
    lookups.seen.clear()
    lookups.tried = tried
    launches: list[compile_gate.Launch] = []
    compile_gate.record(function, profile, _inputs(profile, json.loads(sizes), dtype), launches)
    return lookups, launches


def _inputs(profile: KernelProfile, sizes: dict[str, int], dtype: str) -> dict[str, torch.Tensor | None]:
    """Tensors of the sizes that are timed. Nobody writes to those of floats, so that they take no memory."""
    inputs: dict[str, torch.Tensor | None] = {}
    for tensor in profile.forward_inputs:
        shape = [extent(axis, sizes) for axis in tensor.shape]
        if tensor.dtype == "float":
            inputs[tensor.name] = torch.empty(shape, dtype=getattr(torch, dtype), requires_grad=True)
        else:
            inputs[tensor.name] = torch.zeros(shape, dtype=torch.bool if tensor.dtype == "bool" else torch.int64)
    return inputs


def look(workplace: Workplace, sizes: str, dtype: str) -> list[Seen]:
    """What every launch of forward and backward looks up at these sizes."""
    lookups, launches = _recorded(workplace, sizes, dtype, {})
    phases = {launch.kernel.__name__: launch.phase for launch in reversed(launches)}
    return [
        Seen(one.kernel, phases[one.kernel], one.dtype, one.size, one.default)
        for one in lookups.seen.values()
        if one.kernel in phases
    ]


def compiled(task: Task) -> KernelResources:
    """The most that any launch of the kernel takes; the first error, if one does not compile."""
    tried = {task.kernel: dict(task.settings)} if task.settings else {}
    _, launches = _recorded(task.workplace, task.sizes, task.dtype, tried)
    own = [launch for launch in launches if launch.kernel.__name__ == task.kernel]
    rows = [compile_gate.compile_job(compile_gate.specialise(launch, task.target)) for launch in own]
    return next((row for row in rows if row.error), max(rows, key=lambda row: row.spill_bytes))


@dataclass
class Compilers:
    """Processes that compile. What was asked for once is not compiled again; settings that only a grid sees neither."""

    workplace: Workplace
    pool: ProcessPoolExecutor
    asked: dict[Task, "Future[KernelResources]"] = field(default_factory=dict)

    def ask(self, kernel: str, sizes: str, dtype: str, target: str, settings: Settings) -> "Future[KernelResources]":
        pairs = tuple((name, 1 if name == "per_sm" else value) for name, value in settings.items())
        task = Task(self.workplace, kernel, sizes, dtype, target, pairs)
        if task not in self.asked:
            self.asked[task] = self.pool.submit(compiled, task)
        return self.asked[task]

    def look(self, sizes: str, dtype: str) -> "Future[list[Seen]]":
        return self.pool.submit(look, self.workplace, sizes, dtype)


def compilers(workplace: Workplace) -> Compilers:
    """As many processes as there are cores but two, which time."""
    count = max(1, (len(os.sched_getaffinity(0))) - 2)
    return Compilers(workplace, ProcessPoolExecutor(count, multiprocessing.get_context("spawn")))


def reason(row: KernelResources, settings: Settings, usual: KernelResources) -> str:
    """Why settings are not worth timing: "" if they are. `usual` is what the default takes."""
    if row.error:
        return row.error.splitlines()[0]
    if row.lacks:
        return f"no {row.lacks} there"
    if row.spill_bytes > usual.spill_bytes:
        return f"spills {row.spill_bytes} bytes"
    if "per_sm" not in settings or row.target not in _SHARED:
        return ""
    programs = settings["per_sm"]
    if programs * row.registers * 32 * settings["num_warps"] > _REGISTERS:
        return f"{programs} programs of {row.registers} registers a thread exceed a multiprocessor"
    if programs * row.shared_bytes > _SHARED[row.target]:
        return f"{programs} programs of {row.shared_bytes} bytes of shared memory exceed a multiprocessor"
    return ""
