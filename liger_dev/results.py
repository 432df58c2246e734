"""A kernel's report in Markdown and its workspace in, the report's page in HTML out, with pictures, files and the diff."""

import base64
import difflib
import re

from collections.abc import Sequence
from pathlib import Path

from liger_dev import journal
from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.html_report import html_report
from liger_dev.records import Change
from liger_dev.records import ChangeSet

_PICTURE = re.compile(r"\]\(\.\./\.\./([^)]*\.png)\)")


def page_path(name: str) -> str:
    return f"benchmark/results/{name}.html"


def report_path(name: str) -> str:
    return f"benchmark/results/{name}.md"


def page(name: str, markdown: str, root: Path, pending: Sequence[Change] = (), run_id: str = "") -> str:
    """The page of a report. `pending` are changes that are not on disk yet; the diff is what the run has written."""
    waiting = {change.path: change for change in pending}

    def text(path: str) -> str:
        return waiting[path].content if path in waiting else workspace.read(root, path) or ""

    pictures = {path: _picture(root, path, waiting) for path in _PICTURE.findall(markdown)}
    files = {
        "Diff of the run": _run_diff(root, run_id),
        f"Profile: profiles/{name}.yaml": text(f"profiles/{name}.yaml"),
        f"Reference: kernels/reference/{name}.py": text(f"kernels/reference/{name}.py"),
        f"Kernel: kernels/ops/{name}.py": text(f"kernels/ops/{name}.py"),
    }
    return html_report(name, markdown, pictures, {title: content for title, content in files.items() if content})


def rebuild(name: str, root: Path) -> ChangeSet:
    """The page of the report that is in the workspace. Raises BadInput if there is none."""
    markdown = workspace.read(root, report_path(name))
    if markdown is None:
        raise BadInput(
            f"there is no report of '{name}'", str(root / report_path(name)), f"make it: liger-dev validate {name}"
        )
    return ChangeSet((page_change(root, name, page(name, markdown, root)),))


def page_change(root: Path, name: str, html: str) -> Change:
    return Change(page_path(name), html, workspace.base_of(root, page_path(name)))


def _picture(root: Path, path: str, waiting: dict[str, Change]) -> str:
    """A picture in base64; empty if it is nowhere."""
    if path in waiting:
        return waiting[path].content
    place = root / path
    return base64.b64encode(place.read_bytes()).decode() if place.is_file() else ""


def _run_diff(root: Path, run_id: str) -> str:
    """What a run has written so far, each file once, from what was there before the run."""
    steps: dict[str, journal.Step] = {}
    for path in journal.applied(root, run_id) if run_id else ():
        for step in journal.read_journal(path).steps:
            first = steps.get(step.path, step)
            steps[step.path] = journal.Step(step.path, first.old, step.new)
    return "".join(_diff(step) for step in steps.values())


def _diff(step: journal.Step) -> str:
    try:
        before, after = ((data or b"").decode().splitlines(keepends=True) for data in (step.old, step.new))
    except UnicodeDecodeError:
        return ""  # a picture
    return "".join(difflib.unified_diff(before, after, f"a/{step.path}", f"b/{step.path}"))
