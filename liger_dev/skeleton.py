"""A root folder goes in; the files that a workspace needs and that this one lacks come out, as a change set."""

from pathlib import Path

from liger_dev.records import ChangeSet
from liger_dev.render import render_all
from liger_dev.workspace import View

FILES = (
    "pyproject.toml",
    "kernels/__init__.py",
    "kernels/ops/__init__.py",
    "kernels/ops/utils.py",
    "kernels/modules/__init__.py",
    "kernels/functional.py",
    "kernels/reference/__init__.py",
    "test/__init__.py",
    "test/utils.py",
    "test/kernels/conftest.py",
)
# Whole files of this tool's; the others also hold what a workspace's kernels and its owner added.
HELPERS = ("kernels/ops/utils.py", "test/utils.py", "test/kernels/conftest.py")
_IGNORED = ".liger-dev/"


def skeleton(root: Path, overwrite: bool = False) -> ChangeSet:
    """The missing files of a workspace. One that exists stays as it is, but `.gitignore` gets the runs' folder;
    `overwrite` also brings the helpers that all kernels and tests share to this version's."""
    return missing(View(root), overwrite)


def missing(view: View, overwrite: bool = False) -> ChangeSet:
    """The same, of a workspace as it was seen."""
    there = {path: view.read(path) for path in FILES}
    wanted = [path for path, text in there.items() if text is None or overwrite and path in HELPERS]
    texts = render_all((f"{path}.jinja" for path in wanted), {})
    changes = [view.change(p, texts[p]) for p in wanted if there[p] != texts[p]]
    ignored = view.read(".gitignore") or ""
    if _IGNORED.rstrip("/") not in {line.strip().strip("/") for line in ignored.splitlines()}:
        text = ignored + ("\n" if ignored and not ignored.endswith("\n") else "") + f"{_IGNORED}\n"
        changes.append(view.change(".gitignore", text))
    return ChangeSet(tuple(changes))
