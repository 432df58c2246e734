"""`liger-dev coverage`: a folder of references through the real command, and the table's own rules."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest

from liger_dev import coverage
from liger_dev.coverage import Row
from liger_dev.errors import BadInput
from liger_dev.sandbox import Limits

REPO = Path(__file__).parents[2]
FILES = {
    "scaled.py": (
        "import torch\n\nSHAPES = {'x': ('B', 'T', 'H'), 'weight': ('H',)}\n\n\n"
        "def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:\n"
        "    y = torch.tanh(x) * weight\n    return y\n"
    ),
    "product.py": (
        "import torch\n\nSHAPES = {'x': ('B', 'H'), 'weight': ('H', 'K')}\nPARAMETERS = {}\n\n\n"
        "def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:\n    y = x @ weight\n    return y\n"
    ),
    "broken.py": "def broken(x):\n    return x +\n",
    "7_ReLU.py": (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        return torch.relu(x)\n"
    ),
    "_shared.py": "raise RuntimeError('files with an underscore are no references')\n",
}


def run(*words, cwd):
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "80"}
    command = [sys.executable, "-m", "liger_dev", "coverage", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def covered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("references")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return run(".", "--run", "--json", "rows.json", cwd=folder), folder


def test_a_folder_gives_a_table_and_exit_code_0(covered):
    done, _ = covered
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["kernel", "tier", "seconds", "verdict"]
    verdicts = {line.split()[0]: line.split()[1::2][:2] for line in lines[1:5]}
    assert list(verdicts) == ["relu", "broken", "product", "scaled"], "one row a file, in the order of the files"
    assert verdicts["relu"] == ["1", "verified"] and verdicts["scaled"][1] == "verified"
    assert verdicts["product"] == ["-", "refused:"] and verdicts["broken"] == ["-", "error:"]
    assert "\x1b" not in done.stdout + done.stderr


def test_a_refusal_names_the_node_and_its_source_line(covered):
    done, _ = covered
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("product")]
    assert "aten.m" in line and "y = x @ weight" in line


def test_the_end_sums_up_and_groups(covered):
    done, _ = covered
    end = done.stdout.partition("\n\n")[2].splitlines()
    assert end[0] == "2 verified of 4"
    assert [line.split()[:2] for line in end[1:]] == [["1", "refused:"], ["1", "error:"]]
    assert "(product)" in end[1] and "BadInput (broken)" in end[2]


def test_the_json_file_holds_every_row(covered):
    _, folder = covered
    found = json.loads((folder / "rows.json").read_text())
    assert found["counts"] == {"error": 1, "refused": 1, "verified": 2}
    rows = {row["kernel"]: row for row in found["rows"]}
    assert rows["product"]["node"].startswith("aten.") and rows["product"]["reason"] and rows["product"]["where"]
    assert all(row["seconds"] > 0 for row in rows.values() if row["kernel"] != "broken")
    assert rows["broken"]["where"].endswith("broken.py:2")


def test_progress_is_plain_lines_beside_the_table(covered):
    done, _ = covered
    assert len(done.stderr.splitlines()) == 4 and done.stderr.splitlines()[-1].startswith("4/4 ")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: None, "the folder has no Python file"),
        (lambda folder: (folder / "a.py").write_bytes(b"# \xff\n"), "the file is not UTF-8"),
        (lambda folder: (folder / "a.py").symlink_to(folder / "gone.py"), "the file can't be read"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(make, what, tmp_path):
    make(tmp_path)
    done = run(tmp_path, cwd=tmp_path)
    assert done.returncode == 2 and what in done.stderr and "Traceback" not in done.stderr


def test_a_missing_folder_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="no such folder"):
        coverage.reference_files(tmp_path / "nowhere")


def test_a_file_has_its_own_time_limit(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text("import torch, time\n\n\ndef slow(x: torch.Tensor) -> torch.Tensor:\n    time.sleep(60)\n")
    (row,) = coverage.cover([file], run=False, limits=Limits(seconds=1), say=lambda line: None)
    assert (row.verdict, row.group) == ("error", "LimitReached") and row.seconds < 20


def test_the_same_refusal_counts_as_one_whatever_the_names():
    text = "SHAPES = {'p': ('N', 'H')}\ndef f(p, q): ..."
    other = "SHAPES = {'x': ('B', 'T')}\ndef g(x): ..."
    first = coverage._generic("a reduction over H, N: only the last axis, H", text)
    assert first == coverage._generic("a reduction over T: only the last axis, B", other) == "a reduction over _"
    assert coverage._generic("p varies over N", text) == coverage._generic("x varies over B, T", other)


def test_the_summary_ranks_groups_by_count():
    def row(kernel, verdict, group=""):
        return Row(kernel, f"{kernel}.py", None, verdict, 1.0, group=group)

    rows = [
        row("a", "refused", "aten.mm.default"),
        row("b", "refused", "aten.sort.default"),
        row("c", "refused", "aten.sort.default"),
        row("d", "compiled"),
        row("e", "wrong"),
    ]
    assert coverage.summary(rows) == [
        "1 verified of 5",
        "    1 wrong (e)",
        "    2 refused: aten.sort.default (b, c)",
        "    1 refused: aten.mm.default (a)",
    ]
    assert coverage.summary([row("d", "compiled"), row("a", "refused", "x")])[0] == "1 compiled of 2"


@pytest.mark.parametrize(
    ("file", "name"), [("19_ReLU.py", "relu"), ("rms_norm.py", "rms_norm"), ("40_Layer-Norm.py", "layer_norm"), ("1.py", "operation")]
)  # fmt: skip
def test_a_file_name_becomes_an_operations_name(file, name):
    assert coverage._kernel_name(Path(file)) == name
