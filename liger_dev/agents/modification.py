"""A kernel of the workspace and a wish in words in, the change set of what an agent has edited out; tests only grow."""

import ast
import json
import re

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import Field

from liger_dev import render
from liger_dev import workspace
from liger_dev.agents.generation import defined
from liger_dev.agents.generation import styled
from liger_dev.agents.loop import Agent
from liger_dev.agents.prompts import prompt
from liger_dev.agents.seat import Seat
from liger_dev.agents.staging import Staging
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.agents.trials import trials
from liger_dev.errors import BadInput
from liger_dev.generator import MODIFIED
from liger_dev.generator import TEMPLATES
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.records import digest
from liger_dev.render import output_path
from liger_dev.scratch import check_files
from liger_dev.scratch import kernel_files

Derive = Callable[[str, str, KernelProfile], KernelProfile]


class SubmitChange(Arguments):
    summary: str = Field(description="what was changed and why, for the reviewer")
    tests_added: list[str] = Field(description="names of the new test functions")
    no_test_reason: str = Field(default="", description="why no test is needed, if none was added")


def modify_by_agent(
    name: str, wish: str, root: Path, seat: Seat, derive: Derive, remark: str = "", last: ChangeSet = ChangeSet(())
) -> ChangeSet:
    """The edited files.

    Args:
        derive: gives the profile of an edited reference, from its text and the old profile.
        remark, last: what a reviewer wants otherwise, and of which change.

    Raises BadInput if a file of the kernel is missing, LimitReached and ModelFailed.
    """
    check_files(name, root)
    op, test, reference = (
        f"kernels/ops/{name}.py",
        f"test/kernels/test_{name}.py",
        f"kernels/reference/{name}.py",
    )
    writable = frozenset({op, test, reference, f"kernels/modules/{name}.py", "kernels/functional.py"})
    before = {change.path: change.content for change in last.changes if change.path in writable}
    staging = Staging(root, name, writable, base=before)
    profile = parse_profile(staging.text(f"profiles/{name}.yaml"), f"profiles/{name}.yaml")

    def submit(given: SubmitChange) -> dict[str, Any]:
        if not staging.files:
            raise Refused("nothing was edited")
        added = added_tests(workspace.read(root, test) or "", staging.text(test), test)
        if sorted(added) != sorted(given.tests_added):
            raise Refused(f"tests_added names {given.tests_added}, and the file has gained {added}")
        if not added and not given.no_test_reason.strip():
            raise Refused("add a test for the new behaviour, or say in no_test_reason why none is needed")
        files = styled(staging, sorted({*before, *staging.files}), defined(workspace.read(root, op) or "", op))
        derived = derive(name, files[reference], profile) if reference in files else profile
        return {"files": files, "profile": print_profile(derived), "summary": given.summary}

    paths = [path for path in kernel_files(name) if workspace.read(root, path) is not None]
    values = {"name": name, "wish": wish, "remark": remark, "paths": paths, "writable": writable}
    tools = (
        *staging.reading(),
        *staging.writing(),
        *trials(staging, seat.say),
        Tool("submit_change", "Hands in the files as they are staged.", SubmitChange, submit, final=True),
    )
    system = prompt("system", {"role": "modifier", "final": "submit_change"})
    agent = Agent("modifier", system, prompt("modify", values), tools, staging.files, digest(before) if before else "")
    handed = seat.talk(agent)
    made = _modified(parse_profile(handed["profile"], f"profiles/{name}.yaml"), profile, wish)
    return ChangeSet(_changes(root, name, handed["files"], profile, made), handed["summary"])


def added_tests(before: str, after: str, where: str) -> list[str]:
    """The test functions that `after` has gained. Raises Refused unless all of `before` is still there, as it was.

    New statements may be imports of new names and undecorated helpers or tests of new names; a test may carry
    `pytest.mark.parametrize` and `pytest.mark.gpu`. So nothing new can stand in for, or skip, what was there.
    """
    old, new = render.parse(before, where).body, render.parse(after, where).body
    kept = [ast.dump(node) for node in old]
    left = list(kept)
    fresh = []
    for node in new:
        if left and ast.dump(node) == left[0]:
            left.pop(0)
        elif ast.dump(node) in kept and isinstance(node, ast.Import | ast.ImportFrom):
            continue
        else:
            fresh.append(node)
    if left:
        raise Refused(f"{where} may only grow: a statement that was there was changed, moved or removed")
    known = {name for node in old for name in _bound(node)}
    for node in fresh:
        if not isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom):
            raise Refused(f"{where}:{node.lineno}: new statements may be imports and functions only")
        if again := known & set(_bound(node)):
            raise Refused(f"{where}:{node.lineno}: {', '.join(sorted(again))} is defined already")
        known |= set(_bound(node))
        _check_decorators(node, where)
    return [node.name for node in fresh if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).split(".")[0] for alias in names]
        case _:
            return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _check_decorators(node: ast.stmt, where: str) -> None:
    for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
        text = ast.unparse(decorator)
        if text != "pytest.mark.gpu" and not text.startswith("pytest.mark.parametrize("):
            raise Refused(f"{where}:{node.lineno}: a new test may not carry @{text.split('(')[0]}")


def _modified(profile: KernelProfile, old: KernelProfile, wish: str) -> KernelProfile:
    """The profile with the wish in its provenance, after those that the old one has."""
    wishes = [*filter(None, [old.provenance.get(MODIFIED)]), " ".join(wish.split())]
    return profile.model_copy(update={"provenance": {**profile.provenance, MODIFIED: "; ".join(wishes)}})


def _profile_text(text: str, new: KernelProfile, where: str) -> str:
    """The profile's file. Where the wish is all that is new, a person's comments stay."""
    (line,) = json.dumps({MODIFIED: new.provenance[MODIFIED]}, ensure_ascii=False)[1:-1].splitlines()
    without = re.sub(r"^  \"?modified\"?:.*\n(?:    .*\n)*", "", text, flags=re.MULTILINE)
    kept = re.sub(
        r"^provenance:\n(?:  .*\n)*", lambda found: f"{found[0]}  {line}\n", without, count=1, flags=re.MULTILINE
    )
    try:
        # Printed, since stamps hold the hash of that, and the order of the provenance is a part of it.
        return kept if print_profile(parse_profile(kept, where)) == print_profile(new) else print_profile(new)
    except BadInput:
        return print_profile(new)


def _changes(
    root: Path, name: str, files: dict[str, str], old: KernelProfile, new: KernelProfile
) -> tuple[Change, ...]:
    """The edited files and the profile; generated files get its hash in their stamps, those that were not edited too.

    So `check` finds nothing, while what a person has edited by hand stays marked as such.
    """
    hashes = digest(print_profile(old)), digest(print_profile(new))
    where = f"profiles/{name}.yaml"
    view = workspace.View(root)
    texts = {where: _profile_text(view.read(where) or "", new, where)}
    for path in dict.fromkeys((*files, *(output_path(t, {"operation_name": name}) for t in TEMPLATES))):
        before = view.read(path) or ""
        texts[path] = render.restamp(before, files.get(path, before), *hashes)
    return tuple(view.change(path, text) for path, text in texts.items() if text != view.read(path))
