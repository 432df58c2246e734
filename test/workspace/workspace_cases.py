"""A small workspace, a change set of six files for it, and what is left where a child process was killed."""

import json
import os
import subprocess
import sys

from pathlib import Path

from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.workspace import base_of

HERE = Path(__file__).parent
OLD = {
    "kernels/ops/__init__.py": "# exports\n",
    "kernels/functional.py": "# functional\n",
    "kernels/ops/old.py": "old\n",
}
NEW = {
    "kernels/ops/silu.py": "op = 1\n" * 50,
    "kernels/ops/old.py": "new\n",
    "profiles/deep/silu.yaml": "name: silu\n",
    "test/kernels/test_silu.py": "def test(): ...\n",
    "kernels/functional.py": "# functional\nsilu\n",
    "kernels/ops/__init__.py": "# exports\nimport silu\n",
}


def make_workspace(root):
    for path, text in OLD.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def change_set(root, contents):
    return ChangeSet(tuple(Change(path, text, base_of(root, path)) for path, text in contents.items()))


def tree(root):
    """Everything under a root but the tool's own state: text by path, None for a folder."""
    paths = [path for path in root.rglob("*") if ".liger-dev" not in path.relative_to(root).parts]
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else None for path in paths}


def saved(path, changes):
    path.write_text(json.dumps(changes.to_json()))
    return path


def environment():
    return {**os.environ, "PYTHONPATH": str(HERE.parents[1])}


def points(root, command, changes, run_id, end="kill"):
    """A copy of `root` for each point at which killed_child.py ended the command, in the command's order."""
    copies = root.with_name(f"{root.name}-{command}-{end}")
    command_line = [sys.executable, HERE / "killed_child.py", root, copies, command, changes, run_id, end]
    done = subprocess.run(command_line, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [copies / str(number) for number in range(len(list(copies.iterdir())))]
