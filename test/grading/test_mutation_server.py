"""The server that runs a test file against planted bugs: one process, a fork a bug, two trees at once."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest
import torch

from liger_dev.grading import wire
from liger_dev.grading.mutation import _too_few

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
OP = "def double(x):\n    return 2 * x\n"
TEST = "import torch\n\nfrom kernels.op import double\n\n\ndef test_double():\n    assert double(torch.ones(3)).sum() == 6\n"
BUGS = {
    "killed": OP.replace("2 * x", "3 * x"),
    "equivalent": OP.replace("2 * x", "x + x"),
    "another zero": OP.replace("2 * x", "2 * x * (1 - 2 * (x == 0))"),
    "survives": OP.replace("2 * x", "2 * x if x.numel() < 9 else 3 * x"),
    "no module": "import no_such_module\n",
    "ends": "import os\n\nos._exit(0)\n",
}
KERNELS = """import torch
import triton
import triton.language as tl


@triton.jit
def _double_kernel(x_ptr, y_ptr):
    tl.store(y_ptr, 2 * tl.load(x_ptr))


@triton.jit
def _triple_kernel(x_ptr, y_ptr):
    tl.store(y_ptr, 3 * tl.load(x_ptr))


def double(x):
    y = torch.zeros_like(x)
    (_triple_kernel if x[0] > 5 else _double_kernel)[(1,)](x, y)
    return y
"""
KERNEL_TEST = """import pytest
import torch

from kernels.op import double


@pytest.mark.parametrize("x, y", [(1.0, 2.0), (6.0, 18.0)])
def test_double(x, y):
    assert double(torch.full((1,), x)) == y
"""


def served(folder, original, bugs=None, test=TEST, enough=9, seconds=100):
    bugs = [(name, text, "") for name, text in BUGS.items()] if bugs is None else bugs
    trees = [folder / f"tree-{number}" for number in range(2)]
    for tree in trees:
        (tree / "kernels").mkdir(parents=True)
        (tree / "kernels" / "__init__.py").touch()
        (tree / "kernels" / "op.py").write_text(original)
        (tree / "test_op.py").write_text(test)
    wire.write(folder, "000", {}, {"x": torch.arange(12.0)}, whole=True)
    case = {"file": "000", "scalars": {}, "wanted": [], "alias": None, "steps": [], "mode": "grad", "reuses": False}
    probe = {"folder": str(folder), "function": "double", "names": [["x"], []], "cases": [case]}
    job = {"trees": [str(tree) for tree in trees], "op": "kernels/op.py", "test": "test_op.py", "seconds": seconds}
    job |= {"original": original, "texts": bugs, "enough": enough, "probe": probe}
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
    assert found["another zero"] == (0, "", 1)
    assert found["survives"] == (0, "", 0)
    assert found["no module"][0] == 2
    assert found["ends"] == (1, "", 0)


def test_nothing_is_planted_where_the_original_fails(tmp_path):
    assert list(served(tmp_path, BUGS["killed"])) == ["original"]


def test_a_bug_in_a_kernel_meets_the_tests_and_cases_that_launch_it(tmp_path):
    both = KERNELS.replace("2 *", "4 *").replace("3 *", "4 *")
    bugs = [
        ("double", KERNELS.replace("2 *", "4 *"), "_double_kernel"),
        ("triple", KERNELS.replace("3 *", "4 *"), "_triple_kernel"),
        # Another kernel's bug beside it goes unseen, unless nothing launches the one that is named.
        ("unseen", KERNELS.replace("2 *", "4 *"), "_triple_kernel"),
        ("nowhere", both, "_other_kernel"),
        ("same", KERNELS.replace("2 * tl.load(x_ptr)", "tl.load(x_ptr) * 2"), "_double_kernel"),
    ]
    found = served(tmp_path, KERNELS, bugs, KERNEL_TEST)
    assert found["double"][:2] == (1, "test_double[1.0-2.0]")
    assert found["triple"][:2] == (1, "test_double[6.0-18.0]")
    assert found["unseen"][0] == 0
    assert found["nowhere"][0] == 1
    assert found["same"] == (0, "", 1)


def test_what_is_no_bug_gives_its_place_to_the_next(tmp_path):
    names = ["equivalent", "equivalent", "no module", "no module", "killed", "killed", "killed", "killed"]
    bugs = [(f"{number} {name}", BUGS[name], "") for number, name in enumerate(names)]
    # Every second one goes to a worker, which stops after one bug.
    assert {*served(tmp_path, OP, bugs, enough=2)} == {"original", *(name for name, _, _ in bugs[:6])}


def test_what_the_time_for_all_ends_is_not_judged(tmp_path):
    hangs = OP.replace("    return", "    while True:\n        pass\n    return")
    # Every second one goes to a worker: the second one does not get beyond its first.
    bugs = [("0", BUGS["killed"], ""), ("1", hangs, ""), ("2", BUGS["killed"], ""), ("3", BUGS["killed"], "")]
    assert {*served(tmp_path, OP, bugs, seconds=12)} == {"original", "0", "2"}


@pytest.mark.parametrize("tried, chosen, told", [(0, 40, True), (9, 40, True), (10, 40, False), (3, 3, False)])
def test_tests_that_met_too_few_bugs_are_not_called_strong(tried, chosen, told):
    """Of twenty bugs that are wanted, ten are enough, or all that there are."""
    assert bool(_too_few(tried, chosen, 20)) is told
