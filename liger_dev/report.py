"""Takes what the validator found, and gives the Results report in Markdown.

Without measurements the text follows from the files and the verdicts alone: no time, duration, folder or run id, so
that two runs give the same bytes.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from liger_dev import measured
from liger_dev.bench.csv import Measurement
from liger_dev.bench.samples import Sampled
from liger_dev.checkstyle import Checkstyle
from liger_dev.checkstyle import StyleState
from liger_dev.diagnosis import likely_cause
from liger_dev.diagnosis import request
from liger_dev.gate import ATTEMPTS
from liger_dev.gate import Attempt
from liger_dev.gate import Gate
from liger_dev.grader_report import section
from liger_dev.grading.resources import KernelResources
from liger_dev.grading.verdict import Verdict
from liger_dev.measured import Flag
from liger_dev.testrun import FAILED
from liger_dev.testrun import PASSED
from liger_dev.testrun import SKIPPED
from liger_dev.testrun import Case

_SHOWN_ERRORS = 8
_ERROR_LINES = 24


@dataclass(frozen=True)
class Findings:
    """All that a report says. `gate` is None when checkstyle stopped the validation.

    `not_measured` is why there are no `rows`; `benchmark_fault` is how the kernel failed while it was measured; `plots`
    are paths in the workspace; `versions` are pairs of package and version; `seeds` are the test's; `state` is the diff
    from the workspace's op file to the one that was judged; `account` is what an agent says to the person of a failure;
    `samples` are those of `rows`, and `recorded` says when and where they were taken, if it was not now; `noise` are those
    of the kernel against itself; `accepted` are metrics that a person accepts to be catastrophically worse.
    """

    name: str
    style: Checkstyle
    gate: Gate | None
    resources: tuple[KernelResources, ...]
    rows: tuple[Measurement, ...]
    not_measured: str
    benchmark_fault: str
    plots: tuple[str, ...]
    ncu: str
    versions: tuple[tuple[str, str], ...]
    seeds: str
    state: str
    account: str = ""
    verdict: Verdict | None = None
    samples: tuple[Sampled, ...] = ()
    accepted: tuple[str, ...] = ()
    recorded: str = ""
    noise: tuple[Sampled, ...] = ()

    @property
    def flags(self) -> tuple[Flag, ...]:
        return measured.flags(self.rows, measured.pairs(self.rows))

    @property
    def refused(self) -> tuple[str, ...]:
        """Metrics that are catastrophically worse and that nobody accepted."""
        return tuple(dict.fromkeys(flag.metric for flag in self.flags if flag.metric not in self.accepted))

    @property
    def passed(self) -> bool:
        tested = self.style.passed and self.gate is not None and self.gate.passed
        return tested and not self.benchmark_fault and not self.refused


def render(findings: Findings) -> str:
    """The report as Markdown, ending with a newline."""
    lines = [
        *_head(findings),
        *_style(findings.style),
        *_compile(findings),
        *_tests(findings),
        *section(
            findings.verdict, "the kernel did not come so far" if not _tested(findings) else "it was not asked for"
        ),
        *_outlook(findings),
        *_benchmark(findings),
        *_provenance(findings),
    ]
    # No two blank lines in a row, wherever a section had nothing to say.
    kept = [line for line, above in zip(lines, ["", *lines]) if line or above]
    return "\n".join(kept).rstrip() + "\n"


def _tested(findings: Findings) -> bool:
    return findings.gate is not None and findings.gate.tested


def _head(findings: Findings) -> Iterator[str]:
    yield f"# Results: {findings.name}"
    yield ""
    yield f"**{'PASSED' if findings.passed else 'FAILED'}**: {_verdict(findings)}"
    yield ""
    for flag in findings.flags:
        by = f" (accepted by `--accept {findings.name}:{flag.metric}`)" if flag.metric in findings.accepted else ""
        yield f"> **Catastrophic:** {flag.text}{by}"
        yield ">"
    if findings.flags:
        yield ""


def _verdict(findings: Findings) -> str:
    gate = findings.gate
    if gate is None:
        return "ruff still finds something after the automatic fix; neither compiled nor tested"
    if gate.tampered:
        return "stopped, since files that are not the candidate's changed while it ran"
    if not gate.tested:
        return f"the tests did not pass in {_count(len(gate.attempts), 'attempt')}; no benchmark was run"
    if findings.verdict is not None and not findings.verdict.passed:
        kinds = "; ".join(dict.fromkeys(fault.kind for fault in findings.verdict.faults))
        tries = "" if len(gate.attempts) == 1 else f" after {_count(len(gate.attempts), 'attempt')}"
        return f"the tests passed, but the grader found{tries}: {kinds}"
    if findings.benchmark_fault:
        return f"the tests passed, but the benchmark failed: {findings.benchmark_fault}"
    if findings.refused:
        names = " ".join(f"--accept {findings.name}:{metric}" for metric in findings.refused)
        worse = " and ".join(findings.refused)
        return f"right, but catastrophically worse than PyTorch in {worse}; accept it by `{names}`"
    passed = "style, compilation, unit tests and grader" if findings.verdict else "style, compilation and unit tests"
    if findings.recorded:
        return f"{passed}; speed and memory are those recorded of this op file"
    return f"{passed}; {'speed and memory were measured' if findings.rows else 'speed was not measured'}"


def _style(style: Checkstyle) -> Iterator[str]:
    yield "## Checkstyle"
    yield ""
    yield f"As found: {_style_state(style.before)}."
    if not style.before.clean:
        yield f"After `ruff check --fix` and `ruff format`: {_style_state(style.after)}."
    yield ""
    for title, state in (("Found", style.before), ("Left", style.after)):
        if not state.clean and (title == "Found" or not style.passed):
            yield from (f"- {title}: `{violation}`" for violation in state.violations)
            yield from (f"- {title}: `{path}` is not formatted" for path in state.unformatted)
            yield ""
    if style.fixed:
        yield f"Fixed files: {_code_list(style.fixed)}."
        yield ""


def _style_state(state: StyleState) -> str:
    if state.clean:
        return "clean"
    return f"{_count(len(state.violations), 'finding')}, {_count(len(state.unformatted), 'file')} not formatted"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _compile(findings: Findings) -> Iterator[str]:
    yield "## Compilation"
    yield ""
    if not findings.resources:
        yield "Not compiled: the validation stopped before." if findings.gate is None else "No kernel was compiled."
        yield ""
        return
    yield "Ahead of time, without a device; the worst of the settings that the op chooses at several sizes."
    yield ""
    yield "| Kernel | Target | Settings | Registers | Spilled bytes | Shared bytes | Verdict |"
    yield "|---|---|---:|---:|---:|---:|---|"
    groups: dict[tuple[str, str], list[KernelResources]] = {}
    for row in findings.resources:
        groups.setdefault((row.kernel, row.target), []).append(row)
    yield from (_resource_row(rows) for _, rows in sorted(groups.items()))
    yield ""


def _resource_row(rows: Sequence[KernelResources]) -> str:
    failed = sum(bool(row.error) for row in rows)
    spills = max(row.spill_bytes for row in rows)
    lacking = next((f"not for it: no {row.lacks} there" for row in rows if row.lacks), "")
    verdict = f"{failed} failed" if failed else lacking or ("compiles, and spills registers" if spills else "compiles")
    worst = f"{max(row.registers for row in rows)} | {spills} | {max(row.shared_bytes for row in rows)}"
    return f"| `{rows[0].kernel}` | {rows[0].target} | {len(rows)} | {worst} | {verdict} |"


def _tests(findings: Findings) -> Iterator[str]:
    gate = findings.gate
    yield "## Unit Tests"
    yield ""
    if gate is None:
        yield "Not run: checkstyle did not pass."
        yield ""
        return
    yield f"On {gate.device}, at most {ATTEMPTS} attempts."
    yield ""
    if gate.attempts:
        yield "| Attempt | Repair before it | Scope | Passed | Failed | Skipped | Verdict |"
        yield "|---:|---|---|---:|---:|---:|---|"
        yield from (_attempt_row(attempt) for attempt in gate.attempts)
        yield ""
        skipped = [case.message for case in gate.attempts[-1].cases if case.outcome == SKIPPED]
        yield from (f"Skipped: {skipped.count(reason)} ({reason})." for reason in dict.fromkeys(skipped))
        yield ""
    if gate.tampered:
        yield f"**Stopped:** these files changed while the candidate ran: {_code_list(gate.tampered)}."
        yield "A candidate may not touch its tests, tolerances, reference or profile, so there was no further attempt."
        yield ""
    elif not gate.tested:
        yield from _failure(gate.judged)
    yield from _repairs(gate)


def _attempt_row(attempt: Attempt) -> str:
    repair = attempt.note or (attempt.repair.move if attempt.repair else "none")
    scope = "compilation" if attempt.kind == "compile" else "whole file" if attempt.whole else "failing tests first"
    counts = " | ".join(str(attempt.count(outcome)) for outcome in (PASSED, FAILED, SKIPPED))
    verdict = f"failed: {attempt.kind}" if attempt.kind else "passed"
    return f"| {attempt.number} | {repair} | {scope} | {counts} | {verdict} |"


def _failure(last: Attempt) -> Iterator[str]:
    yield "### Failing tests"
    yield ""
    yield from (f"- `{case.id}`: {_first_line(case.message)}" for case in last.failures)
    yield ""
    yield "### Errors"
    yield ""
    yield from _errors(last.failures)


def _outlook(findings: Findings) -> Iterator[str]:
    """What a person needs to go on where the last attempt has failed."""
    gate = findings.gate
    if gate is None or gate.passed or gate.tampered:
        return
    last = gate.judged
    yield "## What is left to you"
    yield ""
    yield "### State of the code"
    yield ""
    if findings.state:
        yield "The workspace is unchanged. The op file as judged differs from it by:"
        yield ""
        yield from _block("diff", findings.state)
    else:
        yield "The workspace is unchanged, and the errors above are those of the op file in it: no repair was kept."
        yield ""
    yield "### Likely cause"
    yield ""
    yield f"Kind: {last.kind}. Likely {likely_cause(last.kind, last.failures)}"
    yield ""
    if findings.account:
        yield "### The agent's account"
        yield ""
        yield from (f"> {line}".rstrip() for line in findings.account.splitlines())
        yield ""
    yield "### What is asked of you"
    yield ""
    yield f"Please {request(last.kind)}. Edit `kernels/ops/{findings.name}.py`, then run the command at the end."
    yield ""


def _errors(failures: Sequence[Case]) -> Iterator[str]:
    """One whole error a test function: those of its other parameters differ in numbers, which are listed above."""
    first = list({case.id.split("[")[0]: case for case in reversed(failures)}.values())[::-1]
    for case in first[:_SHOWN_ERRORS]:
        yield f"`{case.id}`"
        yield ""
        text = case.detail if _first_line(case.message) in case.detail else f"{case.message}\n\n{case.detail}"
        lines = text.strip().splitlines()
        cut = [f"… {_count(len(lines) - _ERROR_LINES, 'line')} above"] if len(lines) > _ERROR_LINES else []
        yield from _block("text", "\n".join([*cut, *lines[-_ERROR_LINES:]]))
    if len(first) > _SHOWN_ERRORS:
        yield f"… and {_count(len(first) - _SHOWN_ERRORS, 'more test function')}."
        yield ""


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _repairs(gate: Gate) -> Iterator[str]:
    made = [attempt for attempt in gate.attempts if attempt.repair is not None]
    if not made:
        return
    yield "### Fixes tried"
    yield ""
    for attempt in made:
        assert attempt.repair is not None, "filtered above"
        fate = "kept" if attempt.kept else "taken back, since it did not help"
        yield f"Before attempt {attempt.number}, **{attempt.repair.move}** ({fate}): {attempt.repair.reason}."
        yield ""
        yield from _block("diff", attempt.repair.diff)


def _benchmark(findings: Findings) -> Iterator[str]:
    found, points = measured.pairs(findings.rows), measured.points(findings.samples)
    yield "## Benchmark"
    yield ""
    if findings.recorded:
        yield findings.recorded
        yield ""
    if findings.rows:
        for metric in ("speed", "memory"):
            yield from measured.table(metric, found)
            yield ""
        yield from measured.verdict_lines(points)
        yield from measured.against_itself(findings.noise)
    else:
        yield f"Speed and memory were not measured: {findings.not_measured}."
        yield ""
        if findings.benchmark_fault:
            yield from _block("text", findings.benchmark_fault)
    yield "## Assessment"
    yield ""
    yield measured.assessment(findings.rows) if findings.rows else "Speed: not measured. Memory: not measured."
    yield measured.against_fastest(points)
    yield ""
    yield "## Plots"
    yield ""
    if findings.plots:
        yield from (f"![{path.rsplit('/', 1)[-1]}](../../{path})" for path in findings.plots)
    else:
        yield "None: there is nothing to plot without measurements." if not findings.rows else "None were drawn."
    yield ""
    yield "## ncu"
    yield ""
    yield findings.ncu
    yield ""


def _provenance(findings: Findings) -> Iterator[str]:
    yield "## Provenance"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| Versions | {', '.join(f'{package} {version}' for package, version in findings.versions)} |"
    yield from _device(findings.samples)
    yield f"| Seeds | {findings.seeds} |"
    if findings.verdict is not None:
        yield f"| Seed of the grader | {findings.verdict.seed}, from the op and its reference |"
    if findings.gate is not None:
        yield f"| Device of the tests | {findings.gate.device} |"
        yield f"| Protection of the children | {'<br>'.join(findings.gate.protection) or 'no child was run'} |"
    yield f"| Repeat with | `liger-dev validate {findings.name}` |"


def _device(samples: Sequence[Sampled]) -> Iterator[str]:
    """The GPU that was measured on, and the range of its readings before and after each size."""
    if not samples:
        return
    versions = ", ".join(f"{name} {version}" for name, version in samples[-1].under.versions.items())
    yield f"| Measured on | {samples[0].key[-1]}{f', {versions}' if versions else ''} |"
    states = [state for one in samples for state in (one.under.before, one.under.after) if "unread" not in state]
    for reading in ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw"):
        values = sorted({state[reading] for state in states}, key=lambda text: (len(text), text))
        if values:
            yield f"| {reading} | {values[0]}{f' to {values[-1]}' if len(values) > 1 else ''} |"


def _block(language: str, text: str) -> Iterator[str]:
    # A fence longer than any in the text: a test's message may hold one of its own.
    fence = "```" if "```" not in text else "`````"
    yield f"{fence}{language}"
    yield text
    yield fence
    yield ""


def _code_list(paths: Sequence[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)
