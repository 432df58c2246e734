"""The stages whose output is a change set: generator, changes in words, and the files of a workspace."""

import difflib

from dataclasses import replace
from typing import Any

from liger_dev import workspace
from liger_dev.pipeline import Context
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.records import digest
from liger_dev.requests import profile_path
from liger_dev.requests import reference_path
from liger_dev.stages.analysis import analysis_of
from liger_dev.stages.analysis import seat_inputs


def _generate_inputs(context: Context) -> Any:
    return [digest(context.outputs["analyze"]), context.request["overwrite"], seat_inputs(context)]


def _generate(context: Context) -> Any:
    from liger_dev.agents.engine import generate

    return generate(context, analysis_of(context.outputs["analyze"])).to_json()


def _retry_generation(context: Context, output: Any, remark: str) -> Any:
    from liger_dev.agents import engine

    if not engine.asks(context.request):
        return None
    analysis = analysis_of(context.outputs["analyze"])
    return engine.remark_on_kernel(context, analysis, ChangeSet.from_json(output), remark).to_json()


def _modify_inputs(context: Context) -> Any:
    return [context.request["name"], context.request["wish"], seat_inputs(context)]


def _modify(context: Context) -> Any:
    from liger_dev.agents.engine import modify

    return modify(context).to_json()


def _retry_modification(context: Context, output: Any, remark: str) -> Any:
    from liger_dev.agents import engine

    return engine.modify(context, remark, ChangeSet.from_json(output)).to_json()


def _changes(context: Context, output: Any) -> ChangeSet:
    return ChangeSet.from_json(output)


def _generate_views(context: Context, output: Any, brief: bool) -> list[View]:
    made = ChangeSet.from_json(output)
    pairs = [(workspace.read(context.root, change.path), change) for change in made.changes]
    diffs = {change.path: _diff(old, change) for old, change in pairs}
    lines = [f"{_fate(old, change, diffs[change.path]):20}{change.path}" for old, change in pairs]
    files = View("Files", "\n".join(lines) or "nothing to change: all files are in place", "text")
    said = [View("About the kernel", made.said, "text")] if made.said else []
    text = "".join(diffs.values())
    return [*said, files] if brief or not text else [*said, files, View("Diff", text, "diff")]


def _fate(old: str | None, change: Change, diff: str) -> str:
    """What becomes of a file: `new`, `changed` with the numbers of lines, or `in place`."""
    if old == change.content:
        return "in place"
    lines = diff.splitlines()[2:]
    counts = f"+{sum(line[:1] == '+' for line in lines)} -{sum(line[:1] == '-' for line in lines)}"
    return f"{'new' if old is None else 'changed'} {counts}"


def _diff(old: str | None, change: Change) -> str:
    before = (old or "").splitlines(keepends=True)
    after = change.content.splitlines(keepends=True)
    origin = "/dev/null" if old is None else f"a/{change.path}"
    lines = difflib.unified_diff(before, after, origin, f"b/{change.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _generate_texts(context: Context, output: Any) -> dict[str, str]:
    """All files but those that the analyzer's review is about: editing them here would part them from the kernel."""
    name = context.request["name"]
    settled = (profile_path(name), reference_path(name))
    changes = ChangeSet.from_json(output).changes
    return {change.path: change.content for change in changes if change.path not in settled}


def _revise_file(context: Context, output: Any, path: str, text: str) -> Any:
    """A reviewer's edit of a generated file; it keeps its stamp, and so counts as edited by hand from then on."""
    from liger_dev.render import parse

    if path.endswith(".py"):
        parse(text, path)
    made = ChangeSet.from_json(output)
    return replace(
        made, changes=tuple(replace(c, content=text) if c.path == path else c for c in made.changes)
    ).to_json()


def _skeleton(context: Context) -> Any:
    from liger_dev.skeleton import skeleton

    return skeleton(context.root, context.request.get("overwrite", False)).to_json()


def no_inputs(context: Context) -> Any:
    return []


GENERATE = Stage(
    "generate",
    "generating the kernel",
    _generate_inputs,
    _generate,
    _generate_views,
    texts=_generate_texts,
    revise=_revise_file,
    retry=_retry_generation,
    changes=_changes,
)
MODIFY = Stage(
    "modify",
    "modifying the kernel",
    _modify_inputs,
    _modify,
    _generate_views,
    texts=_generate_texts,
    revise=_revise_file,
    retry=_retry_modification,
    changes=_changes,
)
INIT = Stage("init", "making the workspace", no_inputs, _skeleton, _generate_views, changes=_changes, reviewed=False)
