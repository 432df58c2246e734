"""Change sets on a real disk: what apply, undo and the lock do, and what they refuse."""

import dataclasses
import hashlib
import os
import subprocess
import sys
import time

import pytest

from workspace_cases import NEW
from workspace_cases import OLD
from workspace_cases import change_set
from workspace_cases import saved
from workspace_cases import tree

from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.errors import StaleWorkspace
from liger_dev.records import Change
from liger_dev.records import ChangeSet


def test_find_root_goes_up_to_kernels_ops(root):
    assert workspace.find_root(root / "kernels" / "ops") == root
    assert workspace.find_root(root) == root


def test_find_root_tells_how_to_make_one(tmp_path):
    with pytest.raises(BadInput) as refused:
        workspace.find_root(tmp_path)
    assert "liger-dev init" in refused.value.todo


def test_read_and_base(root):
    assert workspace.read(root, "kernels/functional.py") == "# functional\n"
    assert workspace.base_of(root, "kernels/functional.py") == hashlib.sha256(b"# functional\n").hexdigest()
    assert workspace.read(root, "kernels/absent.py") is None
    assert workspace.base_of(root, "absent/absent.py") == ""


def test_read_keeps_line_ends_and_refuses_other_encodings(root):
    (root / "a.txt").write_bytes(b"a\r\nb")
    (root / "b.txt").write_bytes(b"caf\xe9")
    assert workspace.read(root, "a.txt") == "a\r\nb"
    with pytest.raises(BadInput, match="byte 3"):
        workspace.read(root, "b.txt")


def test_apply_writes_all_and_leaves_nothing_else(root):
    assert workspace.apply(root, change_set(root, NEW), "run-1") == list(NEW)
    files = {path: text for path, text in tree(root).items() if text is not None}
    assert files == {**OLD, **NEW}
    assert sorted(path.name for path in (root / ".liger-dev").iterdir()) == ["lock", "runs"]


def test_apply_twice_changes_nothing_and_is_undone_once(root):
    before = tree(root)
    changes = change_set(root, NEW)
    workspace.apply(root, changes, "run-1")
    assert workspace.apply(root, changes, "run-1") == []
    workspace.undo(root, "run-1")
    assert tree(root) == before


def test_apply_writes_bytes(root):
    workspace.apply(root, ChangeSet((Change("benchmark/plot.png", "iVBORwD/", "", binary=True),)), "run-1")
    assert (root / "benchmark/plot.png").read_bytes() == b"\x89PNG\x00\xff"
    workspace.undo(root, "run-1")
    assert not (root / "benchmark").exists()


def test_apply_keeps_the_mode_and_gives_new_files_the_usual_one(root):
    (root / "kernels/functional.py").chmod(0o750)
    workspace.apply(root, change_set(root, NEW), "run-1")
    (root / "plain").touch()
    assert (root / "kernels/functional.py").stat().st_mode & 0o777 == 0o750
    assert (root / "kernels/ops/silu.py").stat().st_mode == (root / "plain").stat().st_mode


@pytest.mark.parametrize("edit", ["changed", "removed", "appeared"])
def test_a_stale_base_is_refused_by_name_and_nothing_is_written(root, edit):
    changes = change_set(root, NEW)
    path = {"changed": "kernels/ops/__init__.py", "removed": "kernels/ops/old.py", "appeared": "kernels/ops/silu.py"}[
        edit
    ]
    if edit == "removed":
        (root / path).unlink()
    else:
        (root / path).write_text("mine\n")
    before = tree(root)
    with pytest.raises(StaleWorkspace) as refused:
        workspace.apply(root, changes, "run-1")
    assert refused.value.where == path
    assert tree(root) == before


@pytest.mark.parametrize(
    "path",
    ["../out.py", "/tmp/out.py", "kernels/../../out.py", "", ".", "a\0b", "kernels", "kernels/functional.py/x.py"]
    + [
        ".liger-dev/journal.json",
        "x/.git/hooks/pre-commit",
        "outward/x.py",
        "outfile.py",
        "loop/x.py",
        "n" * 300,
        "n" * 250,
    ],
)
def test_paths_that_leave_the_root_are_refused(root, tmp_path, path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file.py").write_text("theirs\n")
    (root / "outward").symlink_to(tmp_path / "outside")
    (root / "outfile.py").symlink_to(tmp_path / "outside/file.py")
    (root / "loop").symlink_to(root / "loop")
    good = Change("kernels/ops/good.py", "good\n", "")
    with pytest.raises(BadInput) as refused:
        workspace.apply(root, ChangeSet((good, Change(path, "evil\n", ""))), "run-1")
    assert refused.value.where == path
    assert os.listdir(tmp_path / "outside") == ["file.py"]
    assert (tmp_path / "outside/file.py").read_text() == "theirs\n"
    assert not (root / "kernels/ops/good.py").exists()


def test_a_link_inside_the_root_is_written_through(root):
    (root / "alias.py").symlink_to("kernels/functional.py")
    workspace.apply(root, change_set(root, {"alias.py": "through\n"}), "run-1")
    assert (root / "alias.py").is_symlink()
    assert (root / "kernels/functional.py").read_text() == "through\n"


@pytest.mark.parametrize("paths", [("a.py", "a.py"), ("a.py", "alias.py"), ("a", "a/b.py")])
def test_paths_in_each_others_way_are_refused(root, paths):
    (root / "alias.py").symlink_to("a.py")
    before = tree(root.joinpath("kernels"))
    with pytest.raises(BadInput):
        workspace.apply(root, ChangeSet(tuple(Change(path, "x\n", "") for path in paths)), "run-1")
    assert tree(root.joinpath("kernels")) == before
    assert not (root / "a.py").exists()


def test_undo_puts_everything_back(root):
    before = tree(root)
    workspace.apply(root, change_set(root, NEW), "run-1")
    assert sorted(workspace.undo(root, "run-1")) == sorted(NEW)
    assert tree(root) == before
    assert workspace.undo(root, "run-1") == []


def test_undo_takes_back_several_change_sets_of_a_run(root):
    before = tree(root)
    workspace.apply(root, change_set(root, NEW), "run-1")
    repaired = {"kernels/ops/silu.py": "op = 2\n", "report.md": "# Results\n"}
    workspace.apply(root, change_set(root, repaired), "run-1")
    workspace.undo(root, "run-1")
    assert tree(root) == before


def test_undo_names_a_file_that_a_person_changed(root):
    workspace.apply(root, change_set(root, NEW), "run-1")
    (root / "kernels/ops/silu.py").write_text("mine\n")
    before = tree(root)
    with pytest.raises(BadInput) as refused:
        workspace.undo(root, "run-1")
    assert refused.value.where == "kernels/ops/silu.py"
    assert tree(root) == before


def test_undo_lets_be_what_is_back_already(root):
    before = tree(root)
    workspace.apply(root, change_set(root, NEW), "run-1")
    (root / "kernels/functional.py").write_text(OLD["kernels/functional.py"])
    (root / "kernels/ops/silu.py").unlink()
    assert "kernels/ops/silu.py" not in workspace.undo(root, "run-1")
    assert tree(root) == before


def test_undo_of_a_shared_file_waits_for_the_later_run(root):
    before = tree(root)
    shared = "kernels/ops/__init__.py"
    workspace.apply(root, change_set(root, NEW), "20260101-run-a")
    workspace.apply(root, change_set(root, {shared: NEW[shared] + "import gelu\n"}), "20260102-run-b")
    with pytest.raises(BadInput, match="run 20260102-run-b") as refused:
        workspace.undo(root, "20260101-run-a")
    assert refused.value.where == shared
    workspace.undo(root, "20260102-run-b")
    workspace.undo(root, "20260101-run-a")
    assert tree(root) == before


def test_a_waiting_lock_gets_its_turn(root, looping):
    holder = looping(root, "hold", root / ".liger-dev/lock")
    begin = time.monotonic()
    with pytest.raises(BadInput, match=f"pid {holder.pid}"):
        with workspace.lock(root, seconds=0.2):
            pytest.fail("two holders")
    assert 0.2 <= time.monotonic() - begin < 5
    with subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {holder.pid}"]), workspace.lock(root, seconds=5):
        assert (root / ".liger-dev/lock").read_text() == str(os.getpid())


def test_of_two_runs_on_one_file_one_wins_whole(root, tmp_path, looping):
    sets = [{path: f"{text}# {name}\n" for path, text in NEW.items()} for name in ("one", "two", "three")]
    files = [saved(tmp_path / f"{i}.json", change_set(root, contents)) for i, contents in enumerate(sets)]
    children = [looping(root, "once", file, f"run-{i}", is_ready=False) for i, file in enumerate(files)]
    codes = [child.wait(timeout=60) for child in children]
    assert sorted(codes) == [0, 9, 9]
    winner = sets[codes.index(0)]
    assert {path: (root / path).read_text() for path in NEW} == winner


def test_no_update_is_lost_between_writers(root, looping):
    children = [looping(root, "lines", name, 15) for name in ("a", "b")]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    written = (root / "kernels/log.txt").read_text().splitlines()
    assert sorted(written) == sorted(f"{name} {number}" for name in "ab" for number in range(15))


def test_the_tool_imports_no_torch():
    code = (
        "import sys, liger_dev.workspace, liger_dev.runs; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_records_of_other_versions_are_read():
    change = Change("a", "b", "")
    plain = {key: value for key, value in dataclasses.asdict(change).items() if key != "binary"}
    assert ChangeSet.from_json({"changes": [plain]}) == ChangeSet((change,))
