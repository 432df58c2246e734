"""The whole validator on a real kernel: what it reports, what it would write, and what it leaves alone."""

from pathlib import Path

import pytest

from liger_dev import render
from liger_dev.errors import BadInput
from liger_dev.records import ChangeSet
from liger_dev.scratch import hashes
from liger_dev.scratch import kernel_files
from liger_dev.validator import Report
from liger_dev.validator import validate
from liger_dev.workspace import apply

OP = "kernels/ops/center.py"
RESULTS = "benchmark/results/center.md"


def _contents(changes: ChangeSet) -> dict[str, str]:
    return {change.path: change.content for change in changes.changes}


def _section(markdown: str, title: str) -> str:
    return markdown.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]


def test_two_runs_of_a_sound_kernel_give_the_same_report(center: Path):
    before = hashes(center)
    first, second = validate("center", center, grade=False), validate("center", center, grade=False)
    assert first.passed
    assert first.markdown == second.markdown
    assert _contents(first.changes) == {RESULTS: first.markdown}
    assert str(center) not in first.markdown
    assert hashes(center) == before
    assert "| `_center_kernel` | sm_90 |" in first.markdown
    assert "speed was not measured" in first.markdown
    assert "no CUDA GPU" in first.markdown
    assert "`torch.manual_seed(7)` in test/kernels/test_center.py" in first.markdown
    assert Report.from_json(first.to_json()) == first


def test_a_repair_and_a_style_fix_reach_the_workspace_through_changes_with_a_fresh_stamp(center: Path, edit):
    edit(OP, "import torch\n", "import torch\nimport json\n")
    edit(OP, "other=0.0).to(tl.float32)", "other=0.0)")
    (center / OP).write_text(render.stamp((center / OP).read_text(), "profiles/center.yaml", "1" * 8, "2" * 8))
    before = hashes(center)
    report = validate("center", center, grade=False)
    assert report.passed
    assert hashes(center) == before
    contents = _contents(report.changes)
    assert list(contents) == [OP, RESULTS]
    assert ".to(tl.float32)" in contents[OP]
    assert "import json" not in contents[OP]
    assert not render.is_hand_edited(contents[OP])
    assert "accumulate in float32** (kept)" in report.markdown
    assert "| 1 | none | whole file | 2 | 1 | 0 | failed: dtype |" in report.markdown
    assert "| 2 | accumulate in float32 | whole file | 3 | 0 | 0 | passed |" in report.markdown
    assert "F401" in _section(report.markdown, "Checkstyle")
    apply(center, report.changes, "run")
    assert (center / OP).read_text() == contents[OP]


def test_a_planted_bug_ends_with_the_report_that_a_person_needs(center: Path, edit):
    edit(OP, " / n_cols", "")
    report = validate("center", center, grade=False)
    assert not report.passed
    assert list(_contents(report.changes)) == [RESULTS]
    assert "did not pass in 3 attempts" in report.markdown
    assert "| 1 | none | whole file | 1 | 2 | 0 | failed: kernel logic |" in report.markdown
    assert "| 2 | one row a program | failing tests first | 0 | 2 | 0 | failed: kernel logic |" in report.markdown
    assert "| 3 | another block size | failing tests first | 0 | 2 | 0 | failed: kernel logic |" in report.markdown
    assert "test_center[float32]" in _section(report.markdown, "Failing tests")
    assert "Greatest absolute difference" in _section(report.markdown, "Errors")
    assert "one row a program** (taken back" in _section(report.markdown, "Fixes tried")
    assert "+    BLOCK_COLS *= 2" in _section(report.markdown, "Fixes tried")
    assert "no repair was kept" in _section(report.markdown, "State of the code")
    assert "Kind: kernel logic" in _section(report.markdown, "Likely cause")
    assert OP in _section(report.markdown, "What is asked of you")
    assert "not measured" in _section(report.markdown, "Benchmark")


def test_style_that_ruff_cannot_mend_stops_before_any_child(center: Path, edit):
    edit(OP, "    return y\n", "    return undefined_name\n")
    told: list[str] = []
    report = validate("center", center, say=told.append, grade=False)
    assert not report.passed
    assert told == ["checkstyle"]
    assert "F821" in _section(report.markdown, "Checkstyle")
    assert "Not run" in _section(report.markdown, "Unit Tests")
    assert list(_contents(report.changes)) == [RESULTS]


def test_an_op_that_ends_the_process_at_import_fails(plain: Path, edit):
    edit(OP, "import math\n", "import math\nimport os\n\nos._exit(0)\n")
    report = validate("center", plain, grade=False)
    assert not report.passed
    assert "the compile gate gave no result" in report.markdown
    assert "ended with exit code 0 and left no result" in report.markdown


@pytest.mark.parametrize("path", kernel_files("center"))
def test_a_missing_file_is_named(center: Path, path: str):
    (center / path).unlink()
    with pytest.raises(BadInput, match=path):
        validate("center", center, grade=False)


@pytest.mark.parametrize("name", ["../center", "Center", "", "a b"])
def test_a_name_that_is_none_is_refused(center: Path, name: str):
    with pytest.raises(BadInput, match="no kernel's name"):
        validate(name, center)
