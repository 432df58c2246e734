"""Takes a kernel's scratch copy, compiles and tests it in children, repairs it at most twice, and gives the verdict.

The order of an attempt is compile, then the tests that failed last time, then the whole file, then the grader. Tests,
tolerances, conftest, reference, profile and every other file are hashed around each child: a change ends the gate at once.
"""

import shutil
import subprocess
import sys

from collections.abc import Callable
from collections.abc import Set
from dataclasses import dataclass
from dataclasses import replace
from typing import TypeVar

from liger_dev import grader_report
from liger_dev.checkstyle import checkstyle
from liger_dev.compilation import Compiled
from liger_dev.diagnosis import kind_of
from liger_dev.grading.verdict import Verdict
from liger_dev.repair import COMPILE
from liger_dev.repair import GRADER
from liger_dev.repair import Repair
from liger_dev.repair import repair
from liger_dev.repair import unified_diff
from liger_dev.sandbox import Limits
from liger_dev.scratch import KernelCopy
from liger_dev.scratch import differences
from liger_dev.scratch import hashes
from liger_dev.scratch import locked_hashes
from liger_dev.testrun import FAILED
from liger_dev.testrun import PASSED
from liger_dev.testrun import SKIPPED
from liger_dev.testrun import Case
from liger_dev.testrun import run_tests

ATTEMPTS = 3
INTERPRETER = "Triton's interpreter on the CPU"
INTERPRETED = {"TRITON_INTERPRET": "1"}
NO_MOVE = "no further builtin move"
# Beyond this the failing tests alone take about as long as the whole file.
_SUBSET = 200
_PROBE = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
_PROBE_SECONDS = 120
TEST_LIMITS = Limits(seconds=600)

T = TypeVar("T")
Compiler = Callable[[KernelCopy], Compiled]
Grader = Callable[[KernelCopy], Verdict]


@dataclass(frozen=True)
class Attempt:
    """One try. `kind` is empty for a pass; `repair` was made before it and `kept` says whether it helped.

    `verdict` is the grader's, which is asked only where all tests have passed.
    """

    number: int
    cases: tuple[Case, ...]
    kind: str = ""
    whole: bool = True
    repair: Repair | None = None
    kept: bool = True
    note: str = ""
    compiled: Compiled = Compiled(())
    verdict: Verdict | None = None

    @property
    def failures(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.outcome == FAILED)

    def count(self, outcome: str) -> int:
        return sum(case.outcome == outcome for case in self.cases)


@dataclass(frozen=True)
class Gate:
    """The verdict on compile, tests and grader. `tampered` names files that changed while the candidate ran."""

    attempts: tuple[Attempt, ...]
    tampered: tuple[str, ...]
    device: str
    protection: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.tested and not self.attempts[-1].kind

    @property
    def tested(self) -> bool:
        """Whether the tests have passed, whatever the grader says."""
        return not self.tampered and bool(self.attempts) and self.judged.kind in ("", GRADER)

    @property
    def judged(self) -> Attempt:
        """The attempt whose op file stands: the last one that was not taken back."""
        return next(attempt for attempt in reversed(self.attempts) if attempt.kept)


# Takes the best op text so far, how it fared and the moves that were made; None when there is nothing left to try.
Mend = Callable[[str, Attempt, Set[str]], Repair | None]


class Tampered(Exception):
    """A child changed a file that is not its own."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(", ".join(paths))
        self.paths = paths


def gpu_name() -> str:
    """The CUDA device that children will see, empty if there is none. Torch is asked in a process of its own."""
    if shutil.which("nvidia-smi") is None:
        return ""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_PROBE_SECONDS)
    if listed.returncode != 0 or not listed.stdout.strip():
        return ""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS)
    return probe.stdout.strip() if probe.returncode == 0 else ""


def run_gate(
    copy: KernelCopy,
    device: str,
    integers: Set[str],
    compiler: Compiler,
    say: Callable[[str], None],
    mend: Mend | None = None,
    grader: Grader | None = None,
) -> Gate:
    """Up to three attempts, with a repair before the second and the third.

    Args:
        device: the GPU's name, empty to run in the interpreter.
        integers: names of tensor arguments that hold no floating numbers (the profile's).
        compiler: compiles the kernels of the copy ahead of time and gives what failed.
        mend: makes the repairs in place of the builtin moves.
        grader: grades the copy where its tests have passed.

    On return the copy's op file is as it stood in the best attempt.
    """
    mend = mend or (lambda text, attempt, tried: repair(text, attempt.kind, tried, integers))
    loop = _Loop(copy, {} if device else INTERPRETED, mend, compiler, grader, say)
    attempts: list[Attempt] = []
    try:
        while len(attempts) < ATTEMPTS and not (attempts and (not attempts[-1].kind or attempts[-1].note == NO_MOVE)):
            made = loop.attempt(len(attempts) + 1)
            if made is None:
                break
            attempts.append(made)
            say(f"attempt {len(attempts)}: {_summary(attempts[-1])}")
    except Tampered as stop:
        return Gate(tuple(attempts), stop.paths, device or INTERPRETER, loop.protection)
    return Gate(tuple(attempts), (), device or INTERPRETER, loop.protection)


@dataclass
class _Loop:
    """What one attempt leaves for the next: the best one so far, its text, and the moves that were tried."""

    copy: KernelCopy
    env: dict[str, str]
    mend: Mend
    compiler: Compiler
    grader: Grader | None
    say: Callable[[str], None]
    protection: tuple[str, ...] = ()
    best: Attempt | None = None
    best_text: str = ""
    tried: frozenset[str] = frozenset()

    def attempt(self, number: int) -> Attempt | None:
        """The next attempt; None where the tests have passed and nobody mends what the grader found."""
        made = None
        if self.best is not None:
            made = self._repair(self.best)
            if made is None and self.best.kind == GRADER:
                return None
            if made is None:
                return replace(self.best, number=number, repair=None, note=NO_MOVE)
            self.say(f"repair: {made.move}")
        result = replace(self._run(), number=number, repair=made)
        if self.best is None or _progress(result) > _progress(self.best):
            self.best, self.best_text = result, self.copy.text(self.copy.op)
            return result
        (self.copy.tree / self.copy.op).write_text(self.best_text)
        return replace(result, kept=False)

    def _repair(self, best: Attempt) -> Repair | None:
        """Makes the next move that applies and leaves clean style; a move that doesn't is passed over."""
        path = self.copy.tree / self.copy.op
        if best.verdict is not None and not best.verdict.repairable(self.copy.op):
            return None
        while made := self.mend(self.best_text, best, self.tried):
            self.tried |= {made.move}
            path.write_text(made.text)
            if checkstyle(self.copy.tree, self.copy.root, [self.copy.op], ()).passed:
                text = path.read_text()
                return replace(made, text=text, diff=unified_diff(self.best_text, text, self.copy.op))
            path.write_text(self.best_text)
        return None

    def _run(self) -> Attempt:
        compiled = self._guarded(lambda: self.compiler(self.copy))
        if compiled.failures:
            return Attempt(0, compiled.failures, COMPILE, compiled=compiled)
        tested = replace(self._run_tests(compiled.obstacle), compiled=compiled)
        if tested.kind or self.grader is None:
            return tested
        self.say("grader")
        verdict = self.grader(self.copy)
        for line in grader_report.brief(verdict):
            self.say(line)
        return replace(tested, kind="" if verdict.passed else GRADER, verdict=verdict)

    def _run_tests(self, obstacle: tuple[Case, ...]) -> Attempt:
        failed = [case.id for case in self.best.failures] if self.best and self.best.kind != COMPILE else []
        named = [id for id in failed if "::" in id]
        if named and len(named) <= _SUBSET:
            again = self._test(named)
            if any(case.outcome == FAILED for case in again):
                return _judged((*again, *obstacle), self.best.cases if self.best else (), whole=False)
        return _judged((*self._test([]), *obstacle), (), whole=True)

    def _test(self, only: list[str]) -> tuple[Case, ...]:
        return self._guarded(lambda: self._child(only))

    def _child(self, only: list[str]) -> tuple[Case, ...]:
        run = run_tests(self.copy, self.env, TEST_LIMITS, only)
        self.protection = run.protection
        return run.cases

    def _guarded(self, child: Callable[[], T]) -> T:
        before = (hashes(self.copy.tree), locked_hashes(self.copy))
        result = child()
        changed = differences(before[0], hashes(self.copy.tree))
        changed += tuple(f"{path} (in the workspace)" for path in differences(before[1], locked_hashes(self.copy)))
        if changed:
            raise Tampered(changed)
        return result


def _judged(cases: tuple[Case, ...], earlier: tuple[Case, ...], whole: bool) -> Attempt:
    attempt = Attempt(0, cases, whole=whole)
    return replace(attempt, kind=kind_of(attempt.failures, (*cases, *earlier))) if attempt.failures else attempt


def _progress(attempt: Attempt) -> tuple[bool, int, bool, int]:
    """Larger is better: what compiles, then fewer failing tests, then a pass, then fewer faults that the grader finds."""
    faults = len(attempt.verdict.faults) if attempt.verdict is not None else 0
    return attempt.kind != COMPILE, -len(attempt.failures), not attempt.kind, -faults


def _summary(attempt: Attempt) -> str:
    if not attempt.kind:
        return f"{attempt.count(PASSED)} tests passed, {attempt.count(SKIPPED)} skipped"
    if attempt.kind == GRADER:
        return f"{attempt.count(PASSED)} tests passed, and the grader found {_counted(attempt.verdict)}"
    return f"{len(attempt.failures)} failed ({attempt.kind}){f'; {attempt.note}' if attempt.note else ''}"


def _counted(verdict: Verdict | None) -> str:
    number = len(verdict.faults) if verdict is not None else 0
    return f"{number} fault{'' if number == 1 else 's'}"
