"""A journal in, every file that it names in place: the crash-safe core of the workspace.

The order of writing is the guarantee: (1) the journal under a temporary name, (2) each new content under a temporary
name beside its file, (3) the journal's rename, from where on the change counts as made, (4) each file's rename,
(5) the journal's move into the run's folder. A kill before (3) is cleaned up, a kill after it is finished,
by whichever command comes next. All of it expects the workspace's lock to be held.
"""

import base64
import contextlib
import json
import os

from dataclasses import dataclass
from pathlib import Path
from pathlib import PurePosixPath
from typing import Any

from liger_dev.disk import disk_errors
from liger_dev.disk import make_folder
from liger_dev.disk import sync_folder
from liger_dev.disk import temporary
from liger_dev.disk import write_synced
from liger_dev.errors import BadInput
from liger_dev.errors import StaleWorkspace

STATE = ".liger-dev"
_CLOSED = (STATE, ".git")


@dataclass(frozen=True)
class Step:
    """One file's way from its old content to its new one; None is no file."""

    path: str
    old: bytes | None
    new: bytes | None


@dataclass(frozen=True)
class Journal:
    """A change set on its way. `folders` are those it makes; `undoes` are the saved journals that it takes back."""

    run_id: str
    steps: tuple[Step, ...]
    folders: tuple[str, ...] = ()
    saved_as: str = ""
    undoes: tuple[str, ...] = ()


def inside(root: Path, path: str) -> Path:
    """The real place of a path of a change set. Raises BadInput unless it is a file's place within the root."""
    home = root.resolve()
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in path:
        raise bad_path(path, "it must be relative and without '..'")
    try:
        target = (home / relative).resolve()
        has_place = (target.is_file() or not target.exists()) and all(
            p.is_dir() or not p.exists() for p in target.parents
        )
        temporary(target).exists()  # refuses a name that is too long for what stands in for it while it is written
    except (OSError, RuntimeError) as error:
        raise bad_path(path, f"it can't be followed ({error})") from None
    if not target.is_relative_to(home):
        raise bad_path(path, f"a link in it leads out of the workspace, to {target}")
    if any(part in _CLOSED for part in target.relative_to(home).parts):
        raise bad_path(path, "that folder is not open to change sets")
    if not has_place:
        raise bad_path(path, "there is no place for a file there")
    return target


def bad_path(path: str, reason: str) -> BadInput:
    return BadInput(f"a change set names the path {path!r}: {reason}", path, "name a file inside the workspace")


def content(target: Path) -> bytes | None:
    """A file's bytes, None if there is no such file."""
    with refusals():
        try:
            return target.read_bytes()
        except FileNotFoundError:
            return None


def missing_folders(root: Path, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """The folders that a change set has to make, parents first."""
    home = root.resolve()
    parents = [parent for step in steps for parent in reversed(inside(root, step.path).parents)]
    return tuple(dict.fromkeys(str(parent.relative_to(home)) for parent in parents if not parent.exists()))


def refusals() -> contextlib.AbstractContextManager[None]:
    return disk_errors("mend this (permission, space) and run again; a change that had begun is finished then")


def carry_out(root: Path, journal: Journal) -> None:
    """Takes a journal through all of its steps. An OSError before the journal counts leaves nothing behind."""
    make_folder(root / STATE / "runs" / journal.run_id)
    path = journal_path(root)
    write_synced(temporary(path), _to_bytes(journal))
    try:
        _stage(root, journal.steps)
        os.replace(temporary(path), path)
    except OSError:
        _clean_up(root)
        raise
    sync_folder(path.parent)
    _put_in_place(root, journal, journal.steps)


def _stage(root: Path, steps: tuple[Step, ...]) -> None:
    for step in steps:
        if step.new is not None:
            target = inside(root, step.path)
            make_folder(target.parent)
            write_synced(temporary(target), step.new, like=target)


def _put_in_place(root: Path, journal: Journal, steps: tuple[Step, ...]) -> None:
    for step in steps:
        target = inside(root, step.path)
        if step.new is None:
            target.unlink(missing_ok=True)
        else:
            os.replace(temporary(target), target)
    for folder in {inside(root, step.path).parent for step in journal.steps}:
        if folder.exists():
            sync_folder(folder)
    run_folder = root / STATE / "runs" / journal.run_id
    if journal.undoes:
        _remove_empty(root, journal.folders)
        for name in journal.undoes:
            (run_folder / name).unlink(missing_ok=True)
        sync_folder(run_folder)
        journal_path(root).unlink()
    else:
        os.replace(journal_path(root), run_folder / journal.saved_as)
        sync_folder(run_folder)
    sync_folder(root / STATE)


def finish_interrupted(root: Path) -> list[str]:
    """Finishes a journal that counts, cleans up after one that does not; returns the paths of the former.

    Raises StaleWorkspace, before anything is written, when a file is neither as it was nor as it is to be.
    """
    path = journal_path(root)
    if not path.exists():
        _clean_up(root)
        return []
    journal = read_journal(path)
    rest = tuple(step for step in journal.steps if content(inside(root, step.path)) != step.new)
    for step in rest:
        if content(inside(root, step.path)) != step.old:
            raise StaleWorkspace(
                f"{step.path} was edited while the change set of run {journal.run_id} was interrupted halfway",
                step.path,
                "put your edit aside (bring the file back to what it was) and run again; the change set is finished then",
            )
    make_folder(root / STATE / "runs" / journal.run_id)
    for step in journal.steps:
        temporary(inside(root, step.path)).unlink(missing_ok=True)
    _stage(root, rest)
    _put_in_place(root, journal, rest)
    return [step.path for step in journal.steps]


def _clean_up(root: Path) -> None:
    """Removes what a change set left that never counted: its journal was not renamed, so no file was replaced."""
    pending = temporary(journal_path(root))
    if not pending.exists():
        return
    try:
        journal = _from_bytes(pending.read_bytes())
    except ValueError:
        journal = Journal("", ())  # torn: it is synced before the first temporary file is made, so there are none
    for step in journal.steps:
        temporary(inside(root, step.path)).unlink(missing_ok=True)
    _remove_empty(root, journal.folders)
    pending.unlink()


def _remove_empty(root: Path, folders: tuple[str, ...]) -> None:
    for folder in reversed(folders):
        path = root / folder
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def journal_path(root: Path) -> Path:
    return root / STATE / "journal.json"


def applied(root: Path, run_id: str) -> list[Path]:
    """The saved journals of a run's change sets, oldest first."""
    assert PurePosixPath(run_id).parts == (run_id,) and run_id != "..", f"{run_id!r} is no run's name"
    found = (root / STATE / "runs" / run_id).glob("applied-*.json")
    return sorted(found, key=lambda path: int(path.stem.removeprefix("applied-")))


def read_journal(path: Path) -> Journal:
    try:
        return _from_bytes(path.read_bytes())
    except ValueError:
        raise BadInput(
            "the journal of a change set is damaged",
            str(path),
            "compare the files with your version control, then remove it",
        ) from None


def _to_bytes(journal: Journal) -> bytes:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    steps = [{"path": step.path, "old": text(step.old), "new": text(step.new)} for step in journal.steps]
    return json.dumps({**vars(journal), "steps": steps}, indent=1).encode()


def _from_bytes(raw: bytes) -> Journal:
    """The inverse of `_to_bytes`. Raises ValueError when the bytes are torn."""

    def data_of(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    fields: dict[str, Any] = json.loads(raw)
    steps = tuple(Step(step["path"], data_of(step["old"]), data_of(step["new"])) for step in fields["steps"])
    return Journal(fields["run_id"], steps, tuple(fields["folders"]), fields["saved_as"], tuple(fields["undoes"]))
