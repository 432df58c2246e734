"""A root folder and a change set in, all of its files in place or none of them out, whatever kills the process."""

import contextlib
import hashlib

from collections.abc import Iterator
from pathlib import Path

from liger_dev.disk import exclusive
from liger_dev.disk import temporary
from liger_dev.errors import BadInput
from liger_dev.errors import StaleWorkspace
from liger_dev.journal import STATE
from liger_dev.journal import Journal
from liger_dev.journal import Step
from liger_dev.journal import applied
from liger_dev.journal import bad_path
from liger_dev.journal import carry_out
from liger_dev.journal import content
from liger_dev.journal import finish_interrupted
from liger_dev.journal import inside
from liger_dev.journal import journal_path
from liger_dev.journal import missing_folders
from liger_dev.journal import read_journal
from liger_dev.journal import refusals
from liger_dev.records import Change
from liger_dev.records import ChangeSet


def find_root(start: Path) -> Path:
    """The nearest folder, from `start` upwards, that holds `kernels/ops`. Raises BadInput if none does."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / "kernels" / "ops").is_dir():
            return folder
    raise BadInput(
        "no workspace here: neither this folder nor one above it holds kernels/ops",
        str(start),
        "run `liger-dev init` to make one, or name one with --root",
    )


class View:
    """A workspace's files, each as it was when it was first read. So a change is rendered from what it says it was, though
    another process has written the file in between."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._seen: dict[str, bytes | None] = {}

    def content(self, path: str) -> bytes | None:
        """A file's bytes, None if there is no such file."""
        if path not in self._seen:
            self._seen[path] = content(inside(self.root, path))
        return self._seen[path]

    def read(self, path: str) -> str | None:
        """A file's text, None if there is no such file. Raises BadInput when it is not UTF-8."""
        data = self.content(path)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"the file is not UTF-8: byte {error.start}", path, "save it as UTF-8") from None

    def change(self, path: str, text: str) -> Change:
        """The change that puts `text` in the place of what was seen."""
        return Change(path, text, base(self.content(path)))


def base(data: bytes | None) -> str:
    """The sha256 of a file's bytes, "" if there is no such file: a `Change.base`."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


def base_of(root: Path, path: str) -> str:
    """The `Change.base` of a file that nothing is rendered from."""
    return base(View(root).content(path))


def read(root: Path, path: str) -> str | None:
    """A file's text, None if there is no such file. Raises BadInput when it is not UTF-8."""
    return View(root).read(path)


def lock(root: Path, seconds: float = 60.0) -> contextlib.AbstractContextManager[None]:
    """Keeps every other process from changing the workspace. `apply`, `recover` and `undo` take it themselves.

    Waits up to `seconds`, then raises BadInput with the holder's pid.
    """
    return exclusive(root / STATE / "lock", "the workspace is being changed", seconds)


def apply(root: Path, changes: ChangeSet, run_id: str) -> list[str]:
    """Puts a change set in place and keeps what `undo` needs; returns the paths it wrote.

    A file that already has the new content is left alone. Raises StaleWorkspace when a file is neither what the change
    was rendered from nor the new content, BadInput for a path that leaves the root or a disk that refuses; in both
    cases nothing has been written.
    """
    with _changing(root):
        _refuse_overlaps(root, changes)
        steps = tuple(step for step in (_step(root, change) for change in changes.changes) if step.old != step.new)
        if steps:
            number = len(applied(root, run_id)) + 1
            carry_out(root, Journal(run_id, steps, missing_folders(root, steps), f"applied-{number}.json"))
        return [step.path for step in steps]


def recover(root: Path) -> list[str]:
    """Finishes or cleans up what a killed process left; returns the paths of a change set that it finished.

    Every command calls it first. Raises StaleWorkspace when a person has edited a file in between.
    """
    journal = journal_path(root)
    if not (journal.exists() or temporary(journal).exists()):
        return []
    with lock(root), refusals():
        return finish_interrupted(root)


def undo(root: Path, run_id: str) -> list[str]:
    """Puts back what was there before a run's change sets; returns the paths put back or removed, none if it has none.

    Raises BadInput when a file has been changed since, by a person or by another run; nothing is written then.
    """
    with _changing(root):
        saved = applied(root, run_id)
        if not saved:
            return []
        journals = [read_journal(path) for path in saved]
        latest_first = [step for journal in reversed(journals) for step in reversed(journal.steps)]
        steps = []
        for path in dict.fromkeys(step.path for step in latest_first):
            now = content(inside(root, path))
            before = _before(root, run_id, [step for step in latest_first if step.path == path], now)
            if before != now:
                steps.append(Step(path, now, before))
        folders = dict.fromkeys(folder for journal in journals for folder in journal.folders)
        carry_out(root, Journal(run_id, tuple(steps), tuple(folders), undoes=tuple(path.name for path in saved)))
        return [step.path for step in steps]


def _before(root: Path, run_id: str, latest_first: list[Step], now: bytes | None) -> bytes | None:
    """A file's content before a run's steps. Raises BadInput unless it now holds what the run left or found."""
    path = latest_first[0].path
    if now == latest_first[-1].old:
        return now
    for step in latest_first:
        if now != step.new:
            other = _writer(root, path, run_id, now)
            todo = f"undo run {other} first" if other else "put your edit aside, or take the change back by hand"
            by = f", by run {other} too" if other else ""
            raise BadInput(f"run {run_id} can't be undone: {path} has been changed since{by}", path, todo)
        now = step.old
    return now


def _writer(root: Path, path: str, run_id: str, now: bytes | None) -> str:
    """The other run that gave a path the content it has now, "" if there is none."""
    for folder in sorted((root / STATE / "runs").iterdir(), reverse=True):
        steps = [step for saved in applied(root, folder.name) for step in read_journal(saved).steps]
        if folder.name != run_id and any(step.path == path and step.new == now for step in steps):
            return folder.name
    return ""


def _step(root: Path, change: Change) -> Step:
    old = content(inside(root, change.path))
    step = Step(change.path, old, change.data())
    if old != step.new and base(old) != change.base:
        raise StaleWorkspace(
            f"{change.path} was changed on disk after its new content had been rendered",
            change.path,
            "run again; it is then rendered from the file as it is now",
        )
    return step


def _refuse_overlaps(root: Path, changes: ChangeSet) -> None:
    places = [inside(root, change.path) for change in changes.changes]
    for place, change in zip(places, changes.changes):
        if places.count(place) > 1:
            raise bad_path(change.path, "it is there more than once")
        if any(place in other.parents for other in places):
            raise bad_path(change.path, "another path has it as a folder")


@contextlib.contextmanager
def _changing(root: Path) -> Iterator[None]:
    with lock(root), refusals():
        finish_interrupted(root)
        yield
