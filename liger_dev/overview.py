"""Runs, catalogue, checks and findings in; lines and views for the screen out, at most 80 columns wide."""

import textwrap

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liger_dev import evidence
from liger_dev import history
from liger_dev import sources
from liger_dev.agents.transcript import cost_table
from liger_dev.agents.transcript import lines_of
from liger_dev.agents.transcript import read_all
from liger_dev.doctor import Finding
from liger_dev.errors import BadInput
from liger_dev.pipeline import Context
from liger_dev.pipeline import View
from liger_dev.requests import profile_path
from liger_dev.runs import Run
from liger_dev.stages import stages_of

WIDTH = 80
_KEPT = ("event", "time", "key", "mark", "of")


def run_views(root: Path, run: Run, stage: str) -> list[View]:
    """A run's state and events, or all that a reviewer of one stage's output sees.

    Raises BadInput if there is no such stage, or it has no output yet.
    """
    return _stage_views(root, run, stage) if stage else [View("", "\n".join(_run_lines(root, run)), "text")]


def transcript_views(run: Run) -> list[View]:
    """What the run's agents said and did, a view each, and what it took. Raises BadInput if none was asked."""
    found = read_all(run.folder)
    if not found:
        raise BadInput(f"run {run.id} has no transcript: no agent was asked", run.id, "see the run: liger-dev show RUN")
    talks = [View(transcript.path.name, "\n".join(lines_of(transcript)), "text") for transcript in found]
    return [*talks, View("Cost", "\n".join(cost_table(found)), "markdown")]


def _stage_views(root: Path, run: Run, name: str) -> list[View]:
    stages = {stage.name: stage for stage in stages_of(run.request)}
    output = history.latest_output(run.events(), name)
    if name not in stages or output is None:
        made = dict.fromkeys(event["stage"] for event in run.events() if event["event"] == "output")
        raise BadInput(
            f"run {run.id} has no output of a stage '{name}'", "--stage", f"it has: {', '.join(made) or 'none yet'}"
        )
    value = run.load(output["key"])
    if value is None:
        raise BadInput(
            f"the output of stage {name} is damaged",
            str(run.folder),
            f"make it again: {history.command(root, f'resume {run.id}')}",
        )
    return stages[name].views(Context(root, run.id, run.request, print), value, False)


def _run_lines(root: Path, run: Run) -> Iterator[str]:
    status = run.status()
    yield f"run      {run.id}"
    yield f"request  {run.request['command']} {run.request['name']}"
    yield f"state    {status.state}{' at ' + status.stage if status.stage else ''}"
    if status.reason:
        yield f"         {status.reason}"
    yield ""
    for event in run.events():
        yield f"{event['time'][:19]}  {event['event']:12}{_details(event)}".rstrip()
    yield ""
    yield f"a stage's output: {history.command(root, f'show {run.id} --stage STAGE')}"


def _details(event: dict[str, Any]) -> str:
    values = (_detail(value) for name, value in event.items() if name not in _KEPT and value)
    mark = f"({event['mark'][:8]})" if "mark" in event else ""
    return ", ".join([*values, mark] if mark else values)


def _detail(value: Any) -> str:
    return f"{len(value)} files" if isinstance(value, list) else str(value)


def operation_lines(root: Path | None) -> list[str]:
    """The catalogue and the workspace's own operations, one a line, with a mark at those that are generated."""
    catalogue = dict(sources.catalog_names())
    own = sorted(path.stem for path in (root / "profiles").glob("*.yaml")) if root else []
    names = sorted({*catalogue, *own})
    width = max((len(name) for name in names), default=0)
    lines = []
    for name in names:
        made = root is not None and (root / profile_path(name)).exists()
        summary = catalogue.get(name, "(from another source)")
        lines.append(textwrap.shorten(summary, WIDTH - width - 4, placeholder=" ..."))
        lines[-1] = f"{'*' if made else ' '} {name:{width}}  {lines[-1]}".rstrip()
    return lines


def row_lines() -> list[str]:
    """The ATen operations that the compiler has rows for, in columns; an operation's overloads stand as one."""
    from liger_dev.compiler.lower import ROWS

    names = sorted({name.split(".")[1] for name in ROWS if name.startswith("aten.")})
    return next(
        lines for height in range(1, len(names) + 1) if len(max(lines := _columns(names, height), key=len)) <= WIDTH
    )


def _columns(names: list[str], height: int) -> list[str]:
    """Names in columns of `height`, each as wide as its longest name."""
    columns = [names[start : start + height] for start in range(0, len(names), height)]
    widths = [max(map(len, column)) + 2 for column in columns]
    rows = range(min(height, len(names)))
    return ["".join(f"{c[row]:{w}}" for c, w in zip(columns, widths) if row < len(c)).rstrip() for row in rows]


def check_lines(root: Path, names: list[str]) -> tuple[list[str], list[str]]:
    """What `check` finds wrong about the named operations, or about all of them, and what is only worth knowing.

    Raises BadInput for an unknown name.
    """
    from liger_dev import generator

    for name in names:
        if not (root / profile_path(name)).exists():
            raise BadInput(f"there is no kernel '{name}' here", profile_path(name), "`liger-dev list` shows them")
    found = generator.check(root)
    wanted = {stem for name in names for stem in (name, f"test_{name}", f"benchmark_{name}")}
    found = [line for line in found if not names or Path(line.partition(":")[0]).stem in wanted]
    kernels = names or sorted(path.stem for path in (root / "profiles").glob("*.yaml"))
    bundles = [evidence.check(root, name) for name in kernels]
    return [*found, *(line for wrong, _ in bundles for line in wrong)], [line for _, notes in bundles for line in notes]


def finding_lines(findings: list[Finding]) -> list[str]:
    """The diagnosis: a line a finding and what it means below, then a line that sums it up."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.state:8} {finding.subject:18} {finding.found}"[:WIDTH].rstrip())
        lines.extend(textwrap.wrap(finding.meaning, WIDTH, initial_indent=" " * 9, subsequent_indent=" " * 9))
    broken = [finding.subject for finding in findings if finding.state == "broken"]
    end = f"liger-dev can't run here: mend {', '.join(broken)}" if broken else "liger-dev can run here"
    return [*lines, "", end]
