"""SIGKILL at every system call of apply, recover and undo, and at random times: all of a change set or none of it."""

import random
import time

import pytest

from workspace_cases import NEW
from workspace_cases import OLD
from workspace_cases import change_set
from workspace_cases import make_workspace
from workspace_cases import points
from workspace_cases import saved
from workspace_cases import tree

from liger_dev import workspace
from liger_dev.errors import StaleWorkspace
from liger_dev.records import digest
from liger_dev.workspace import base_of

JOURNAL = ".liger-dev/journal.json"


@pytest.fixture
def changes(root, tmp_path):
    return saved(tmp_path / "changes.json", change_set(root, NEW))


@pytest.fixture
def before(root):
    return tree(root)


@pytest.fixture
def after(tmp_path):
    done = make_workspace(tmp_path / "done")
    workspace.apply(done, change_set(done, NEW), "run-1")
    return tree(done)


@pytest.fixture
def halfway(root, changes):
    """A workspace whose apply was killed with three of six files in place."""

    def replaced(copy):
        return sum(base_of(copy, path) == digest(text) for path, text in NEW.items())

    return next(copy for copy in points(root, "apply", changes, "run-1") if replaced(copy) == 3)


def test_apply_killed_anywhere(root, changes, before, after):
    ends = []
    for copy in points(root, "apply", changes, "run-1"):
        is_made = (copy / JOURNAL).exists() or (copy / ".liger-dev/runs/run-1/applied-1.json").exists()
        workspace.recover(copy)
        assert tree(copy) == (after if is_made else before)
        assert workspace.recover(copy) == []
        assert not list((copy / ".liger-dev").glob("*journal*"))
        ends.append(is_made)
        if is_made:
            workspace.undo(copy, "run-1")
            assert tree(copy) == before
        else:
            workspace.apply(copy, change_set(copy, NEW), "run-1")
            assert tree(copy) == after
    assert ends == sorted(ends), "from one point on, the change set counts as made"
    assert ends.count(True) > 12 and ends.count(False) > 12


def test_recover_killed_anywhere(halfway, changes, after):
    killed = 0
    for copy in points(halfway, "recover", changes, "run-1"):
        workspace.recover(copy)
        assert tree(copy) == after
        killed += 1
    assert killed > 12


def test_undo_killed_anywhere(root, changes, before, after):
    workspace.apply(root, change_set(root, NEW), "run-1")
    killed = 0
    for copy in points(root, "undo", changes, "run-1"):
        is_made = (copy / JOURNAL).exists() or not (copy / ".liger-dev/runs/run-1/applied-1.json").exists()
        workspace.recover(copy)
        assert tree(copy) == (before if is_made else after)
        workspace.undo(copy, "run-1")
        assert tree(copy) == before
        killed += 1
    assert killed > 24


def test_a_full_disk_at_any_call(root, changes, before, after):
    ends = []
    for copy in points(root, "apply", changes, "run-1", end="full"):
        is_made = (copy / JOURNAL).exists() or (copy / ".liger-dev/runs/run-1/applied-1.json").exists()
        if not is_made:
            assert tree(copy) == before, "what never counted is cleaned up at once"
        workspace.recover(copy)
        assert tree(copy) == (after if is_made else before)
        ends.append(is_made)
    assert ends.count(True) > 12 and ends.count(False) > 12


def test_a_person_who_edits_after_the_kill_loses_nothing(halfway, after):
    exports = halfway / "kernels/ops/__init__.py"
    exports.write_text("mine\n")
    with pytest.raises(StaleWorkspace) as refused:
        workspace.recover(halfway)
    assert refused.value.where == "kernels/ops/__init__.py"
    assert exports.read_text() == "mine\n"
    exports.write_text(OLD["kernels/ops/__init__.py"])
    workspace.recover(halfway)
    assert tree(halfway) == after


def test_the_next_apply_finishes_what_was_left_first(halfway, after):
    workspace.apply(halfway, change_set(halfway, {"other.txt": "x\n"}), "run-2")
    assert tree(halfway) == {**after, "other.txt": "x\n"}


def test_kill_at_random_moments(root, tmp_path, looping):
    swapped = [{path: f"{name} {text}" for path, text in NEW.items()} for name in ("one", "two")]
    files = [saved(tmp_path / f"{i}.json", change_set(root, contents)) for i, contents in enumerate(swapped)]
    chance = random.Random(7)
    pending = 0
    for _ in range(12):
        child = looping(root, "swap", *files)
        time.sleep(chance.uniform(0.005, 0.08))
        child.kill()
        child.wait()
        pending += bool(list((root / ".liger-dev").glob("*journal*")))
        workspace.recover(root)
        now = {path: (root / path).read_text() if (root / path).exists() else None for path in NEW}
        assert now in (*swapped, {path: OLD.get(path) for path in NEW})
        assert not [path for path in root.rglob("*liger-dev-tmp")]
    assert pending > 0, "no kill met an apply"
