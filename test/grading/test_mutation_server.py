"""The server that runs a test file against planted bugs: one process, a fork a bug, two trees at once."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest
import torch

from liger_dev.grading import wire

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
OP = "def double(x):\n    return 2 * x\n"
TEST = "import torch\n\nfrom kernels.op import double\n\n\ndef test_double():\n    assert double(torch.ones(3)).sum() == 6\n"
BUGS = {
    "killed": OP.replace("2 * x", "3 * x"),
    "equivalent": OP.replace("2 * x", "x + x"),
    "survives": OP.replace("2 * x", "2 * x if x.numel() < 9 else 3 * x"),
    "no module": "import no_such_module\n",
    "ends": "import os\n\nos._exit(0)\n",
}


def served(folder, original):
    trees = [folder / f"tree-{number}" for number in range(2)]
    for tree in trees:
        (tree / "kernels").mkdir(parents=True)
        (tree / "kernels" / "__init__.py").touch()
        (tree / "kernels" / "op.py").write_text(original)
        (tree / "test_op.py").write_text(TEST)
    wire.write(folder, "000", {}, {"x": torch.arange(12.0)}, whole=True)
    case = {"file": "000", "scalars": {}, "wanted": [], "alias": None, "steps": [], "mode": "grad", "reuses": False}
    probe = {"folder": str(folder), "function": "double", "names": [["x"], []], "cases": [case]}
    job = {"trees": [str(tree) for tree in trees], "op": "kernels/op.py", "test": "test_op.py", "seconds": 100}
    job |= {"original": original, "texts": list(BUGS.items()), "probe": probe}
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "out").mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "liger_dev.grading.mutation_server", str(folder / "job.json"), str(folder / "out")]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for file in (folder / "out").iterdir() for line in file.read_text().splitlines()]
    return {row["name"]: (row["code"], row["failed"], row["same"]) for row in rows}


def test_each_bug_has_an_outcome_of_its_own(tmp_path):
    found = served(tmp_path, OP)
    assert found["original"] == (0, "", 0)
    assert found["killed"] == (1, "test_double", 0)
    assert found["equivalent"] == (0, "", 1)
    assert found["survives"] == (0, "", 0)
    assert found["no module"][0] == 2
    assert found["ends"] == (1, "", 0)


def test_nothing_is_planted_where_the_original_fails(tmp_path):
    assert list(served(tmp_path, BUGS["killed"])) == ["original"]
