"""A staging tree in, tools out that compile, test, grade and measure what is staged, in children under the usual limits."""

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from liger_dev import measured
from liger_dev.agents.prompts import fence
from liger_dev.agents.staging import Staging
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Nothing
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.analyzer import Analysis
from liger_dev.benchmark import run_benchmark
from liger_dev.compilation import Compiled
from liger_dev.compilation import compile_kernels
from liger_dev.gate import INTERPRETED
from liger_dev.gate import TEST_LIMITS
from liger_dev.gate import gpu_name
from liger_dev.gate import run_gate
from liger_dev.grader import grade_kernel
from liger_dev.grader_report import held_out
from liger_dev.grading.verdict import Verdict
from liger_dev.profile import parse_profile
from liger_dev.scratch import KernelCopy
from liger_dev.scratch import differences
from liger_dev.scratch import hashes
from liger_dev.scratch import locked_hashes
from liger_dev.testrun import FAILED
from liger_dev.testrun import PASSED
from liger_dev.testrun import SKIPPED
from liger_dev.testrun import Case
from liger_dev.testrun import run_tests

_SHOWN = 5
_DETAIL = 1800

device = lru_cache(maxsize=1)(gpu_name)


class RunTests(Arguments):
    only: list[str] = Field(default=[], description="ids of tests to run, as in a result; empty: the whole file")


def trials(staging: Staging, say: Callable[[str], None]) -> tuple[Tool, ...]:
    """The tools; the one that measures is there only where a GPU is."""
    tools = (
        Tool(
            "compile_kernels",
            "Compiles the staged kernels ahead of time for sm_80, sm_90, sm_100 and gfx942: registers, spills, errors.",
            Nothing,
            lambda _: _compile(staging),
        ),
        Tool(
            "run_tests",
            "Runs the kernel's unit tests on the staged files, on the GPU or else in Triton's interpreter.",
            RunTests,
            lambda given: _test(staging, given.only),
        ),
        Tool(
            "grade",
            "Grades the staged kernel on hidden cases: passed or not, contracts by name, and what its text may not hold.",
            Nothing,
            lambda _: _grade(staging),
        ),
    )
    if not device():
        return tools
    measure = Tool("run_benchmark", "Measures speed and memory on the GPU.", Nothing, lambda _: _measure(staging, say))
    return (*tools, measure)


def passes_gate(root: Path, analysis: Analysis, files: Mapping[str, str], say: Callable[[str], None]) -> bool:
    """Whether a kernel passes compilation, tests and grader as it is, at the first attempt."""
    name = analysis.reference.name

    def grader(copy: KernelCopy) -> Verdict:
        return grade_kernel(copy, analysis.profile, device())

    with Staging(root, name, frozenset(), base=files).copy() as copy:
        return run_gate(copy, device(), frozenset(), compile_kernels, say, lambda *_: None, grader).passed


def _compile(staging: Staging) -> str:
    with staging.copy() as copy:
        return fence(compiled_text(compile_kernels(copy)), "compiler")


def compiled_text(compiled: Compiled) -> str:
    """The resource report, a line for each kernel, target and setting."""
    lines = map(str, compiled.resources)
    return "\n".join([*lines, *(f"{case.message}\n{case.detail}" for case in compiled.obstacle)]) or "no kernel"


def _test(staging: Staging, only: list[str]) -> str:
    with staging.copy() as copy:
        # Its own tree, and the workspace that a child may reach where no sandbox is in force.
        own = replace(copy, root=staging.root.resolve())
        before = hashes(copy.tree), locked_hashes(own)
        run = run_tests(copy, {} if device() else INTERPRETED, TEST_LIMITS, only)
        changed = (*differences(before[0], hashes(copy.tree)), *differences(before[1], locked_hashes(own)))
    if changed:
        raise Refused(f"the code changed files while it ran, which fails a kernel at once: {', '.join(changed)}")
    return fence(cases_text(run.cases), "tests")


def _grade(staging: Staging) -> str:
    with staging.copy() as copy:
        verdict = grade_kernel(copy, parse_profile(copy.text(copy.profile), copy.profile), device(), mutants=0)
    return fence(held_out(verdict), "grader")


def cases_text(cases: tuple[Case, ...]) -> str:
    """Outcomes in a line, all failing tests by name, and the first few errors in full."""
    failed = [case for case in cases if case.outcome == FAILED]
    counts = {outcome: sum(case.outcome == outcome for case in cases) for outcome in (PASSED, FAILED, SKIPPED)}
    lines = [", ".join(f"{number} {outcome}" for outcome, number in counts.items())]
    lines += [f"- {case.id}" for case in failed]
    for case in failed[:_SHOWN]:
        lines += ["", case.id, case.message[:_DETAIL], case.detail[-_DETAIL:]]
    return "\n".join(lines)


def _measure(staging: Staging, say: Callable[[str], None], environment: Mapping[str, str] = {}) -> str:
    with staging.copy() as copy:
        found = run_benchmark(copy, environment, say)
    if not found.rows:
        raise Refused(found.fault or found.reason)
    tables = [line for metric in ("speed", "memory") for line in measured.table(metric, measured.pairs(found.rows))]
    beside = measured.against_fastest(measured.points(found.samples))
    return fence("\n".join([*tables, measured.assessment(found.rows), beside]), "benchmark")
