"""The test gate on real pytest children: what passes, what is repaired, what ends at attempt three, what stops it."""

from pathlib import Path

import pytest

from liger_dev import repair as moves
from liger_dev.checkstyle import checkstyle
from liger_dev.compilation import Compiled
from liger_dev.gate import INTERPRETER
from liger_dev.gate import NO_MOVE
from liger_dev.gate import Gate
from liger_dev.gate import run_gate
from liger_dev.scratch import KernelCopy
from liger_dev.scratch import kernel_copy
from liger_dev.scratch import locked_hashes
from liger_dev.testrun import FAILED
from liger_dev.testrun import PASSED
from liger_dev.testrun import Case

OP = "kernels/ops/center.py"
TEST = "test/kernels/test_center.py"


def _compiles(copy: KernelCopy) -> Compiled:
    """Stands in for the compiler, which has tests of its own, where a test is about pytest's children."""
    return Compiled(())


def _gate(root: Path, compiler=_compiles) -> tuple[Gate, str]:
    with kernel_copy("center", root) as copy:
        gate = run_gate(copy, "", frozenset(), compiler, lambda message: None)
        assert checkstyle(copy.tree, copy.root, [OP], []).before.clean or not gate.passed
        return gate, copy.text(OP)


def test_a_sound_kernel_passes_at_once(center: Path):
    gate, text = _gate(center)
    assert gate.passed
    (attempt,) = gate.attempts
    assert (attempt.count(PASSED), attempt.count(FAILED)) == (3, 0)
    assert gate.device == INTERPRETER
    assert gate.protection
    assert text == (center / OP).read_text()
    assert list((center / ".liger-dev/scratch").iterdir()) == []


def test_when_no_move_is_left_the_attempt_counts_and_the_gate_stops(center: Path, edit):
    edit(OP, "y = torch.empty_like(x)", "y = torch.empty_like(x, dtype=torch.float64)")
    edit(OP, "BLOCK_ROWS, BLOCK_COLS = 4", "BLOCK_ROWS, BLOCK_COLS = 1 * 1")
    edit(OP, "triton.next_power_of_2(n_cols)\n", "triton.next_power_of_2(n_cols)\n    BLOCK_ROWS = 1\n")
    gate, _ = _gate(center)
    assert gate.attempts[0].kind == moves.DTYPE
    assert [attempt.note for attempt in gate.attempts] == ["", NO_MOVE]
    assert not gate.passed


def test_an_emptied_test_file_is_a_failure(plain: Path):
    (plain / TEST).write_text("")
    gate, _ = _gate(plain)
    assert not gate.passed
    assert gate.attempts[0].failures[0].message == "no test was collected"
    assert [attempt.note for attempt in gate.attempts] == ["", NO_MOVE]


def test_skipping_everything_is_a_failure(plain: Path, edit):
    edit(TEST, "from kernels", "import pytest\n\npytestmark = pytest.mark.skip\nfrom kernels")
    gate, _ = _gate(plain)
    assert not gate.passed
    assert gate.attempts[0].failures[0].message == "every test was skipped"


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("import os; os._exit(0)", "ended with exit code 0 and left no result"),
    ],
)
def test_ending_the_process_with_exit_code_0_is_a_failure(plain: Path, edit, ending: str, message: str):
    edit(OP, "import math\n", f"import math\n\n{ending}\n")
    gate, _ = _gate(plain)
    assert not gate.passed
    assert gate.attempts[0].kind == moves.CRASH
    assert message in gate.attempts[0].failures[0].message


def test_a_test_function_that_does_not_run_is_a_failure(plain: Path):
    hook = "def pytest_collection_modifyitems(items):\n    del items[-1]\n"
    (plain / "test/kernels/conftest.py").write_text(hook)
    gate, _ = _gate(plain)
    assert not gate.passed
    assert "test_shape" in gate.attempts[0].failures[0].message


@pytest.mark.parametrize("path", ["test/utils.py", TEST, "kernels/reference/center.py", "conftest.py"])
def test_a_candidate_that_edits_a_locked_file_stops_the_gate(plain: Path, edit, path: str):
    hostile = (
        f"import math\nimport pathlib\n\n(pathlib.Path(__file__).parents[2] / {path!r}).open('a').write('# loose')\n"
    )
    edit(OP, "import math\n", hostile)
    assert _stopped(_gate(plain)[0], path)


TABLE = "benchmark/data/all_benchmark_data.csv"
EVIDENCE = "benchmark/results/center.evidence.json"


@pytest.mark.parametrize("path", ["test/utils.py", TABLE, "benchmark/data/samples/center.jsonl", EVIDENCE])
def test_a_candidate_that_edits_the_real_workspace_stops_the_gate(plain: Path, edit, path: str):
    target = plain / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    edit(OP, "import math\n", f"import math\n\nopen({str(target)!r}, 'a').write('center,liger,full,speed')\n")
    assert _stopped(_gate(plain)[0], f"{path} (in the workspace)")


def test_a_candidate_that_removes_what_speaks_against_it_stops_the_gate(plain: Path, edit):
    (plain / EVIDENCE).parent.mkdir(parents=True)
    (plain / EVIDENCE).write_text("{}")
    edit(OP, "import math\n", f"import math\nimport os\n\nos.remove({str(plain / EVIDENCE)!r})\n")
    assert _stopped(_gate(plain)[0], f"{EVIDENCE} (in the workspace)")


def test_another_kernel_may_be_measured_meanwhile(plain: Path):
    (plain / TABLE).parent.mkdir(parents=True)
    (plain / TABLE).write_text("centered,liger,full,speed\n")
    with kernel_copy("center", plain) as copy:
        before = locked_hashes(copy)
        (plain / TABLE).write_text("centered,liger,full,speed\nother,liger,full,speed\n")
        assert locked_hashes(copy) == before


def _stopped(gate: Gate, path: str) -> bool:
    """Whether the change was seen, or refused by bubblewrap where that is installed."""
    refused = gate.attempts and "Read-only file system" in gate.attempts[0].failures[0].message
    return not gate.passed and bool(refused or gate.tampered == (path,) and not gate.attempts)


def test_what_a_child_leaves_is_not_imported_by_the_next(plain: Path, edit):
    hostile = """import math
import pathlib

BLOCK_SIZE = 1024
pathlib.Path("kernels/ops").mkdir(parents=True)
for name, text in {"__init__": "", "ops/__init__": "", "ops/center": "def center(x):\\n    return abs(x)\\n"}.items():
    pathlib.Path(f"kernels/{name}.py").write_text(text)
"""
    edit(OP, "import math\n", hostile)
    edit(OP, "return math.fabs(x)", "return math.fabs(x) + 1")
    gate, _ = _gate(plain)
    assert [attempt.kind for attempt in gate.attempts[:2]] == [moves.LOGIC] * 2
    assert gate.attempts[1].repair is not None
    assert not gate.passed


def test_a_crash_is_named(plain: Path, edit):
    edit(OP, "def center(x):", "def center(x):\n    import os\n\n    os.abort()")
    gate, _ = _gate(plain)
    assert not gate.passed
    assert gate.attempts[0].kind == moves.CRASH
    assert "SIGABRT" in gate.attempts[0].failures[0].message


def test_a_kernel_that_does_not_compile_is_repaired_before_it_is_tested(center: Path):
    def compiler(copy: KernelCopy) -> Compiled:
        sound = "num_warps=8" in copy.text(OP)
        return Compiled((), () if sound else (Case("compilation of _center_kernel for sm_90", FAILED, "too much"),))

    gate, _ = _gate(center, compiler)
    assert gate.passed
    assert gate.attempts[0].kind == moves.COMPILE
    assert gate.attempts[0].count(PASSED) == 0
    assert gate.attempts[1].repair is not None
    assert gate.attempts[1].repair.move == moves.MORE_WARPS.name
