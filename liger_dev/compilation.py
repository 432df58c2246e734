"""Takes a kernel's scratch copy, compiles its kernels ahead of time in a child, and gives what each target took."""

import sys

from dataclasses import dataclass

from liger_dev.errors import KernelFailed
from liger_dev.grading.resources import KernelResources
from liger_dev.grading.resources import read_gate
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child
from liger_dev.scratch import KernelCopy
from liger_dev.testrun import FAILED
from liger_dev.testrun import Case
from liger_dev.testrun import child_env
from liger_dev.testrun import portable

COMPILE_LIMITS = Limits(seconds=600)
_TAIL = 2000


@dataclass(frozen=True)
class Compiled:
    """What the compiler took for each kernel and target.

    `failures` are its refusals as failed cases. `obstacle` is why it could not start: the op can't be imported or
    called, which the tests show better.
    """

    resources: tuple[KernelResources, ...]
    failures: tuple[Case, ...] = ()
    obstacle: tuple[Case, ...] = ()


def compile_kernels(copy: KernelCopy) -> Compiled:
    """Compiles every kernel of the copy's op file for every target. A child that leaves no result is an obstacle."""
    folder = copy.folder()
    out = folder / "compiled.json"
    argv = [
        sys.executable,
        "-m",
        "liger_dev.grading.compile_gate",
        copy.name,
        "--root",
        str(copy.tree),
        "--out",
        str(out),
    ]
    done = run_child(argv, scratch=folder, limits=COMPILE_LIMITS, env=child_env(copy))
    try:
        resources = read_gate(out.read_text() if out.is_file() and done.returncode == 0 else "")
    except KernelFailed as error:
        detail = portable(done.stderr[-_TAIL:].strip(), copy)
        return Compiled((), obstacle=(Case("compilation", FAILED, portable(error.what, copy), detail),))
    return Compiled(resources, tuple(_case(row, copy) for row in resources if row.error))


def _case(row: KernelResources, copy: KernelCopy) -> Case:
    return Case(f"compilation of {row.kernel} for {row.target} ({row.variant})", FAILED, portable(row.error, copy))
