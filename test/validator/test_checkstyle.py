"""Checkstyle: what ruff finds, what is mended, and what is left alone."""

from pathlib import Path

from liger_dev.checkstyle import checkstyle

OP = "kernels/ops/center.py"
TEST = "test/kernels/test_center.py"


def _append(root: Path, path: str, text: str) -> None:
    with (root / path).open("a") as file:
        file.write(text)


def test_clean_files_pass_and_are_not_touched(center: Path):
    before = (center / OP).read_bytes()
    style = checkstyle(center, center, [OP, TEST], [TEST])
    assert style.passed
    assert style.before.clean
    assert style.fixed == ()
    assert (center / OP).read_bytes() == before


def test_fixable_findings_are_mended_and_both_states_told(center: Path):
    text = (center / OP).read_text().replace("import torch\n", "import torch\nimport json\n")
    (center / OP).write_text(text.replace("y = torch.empty_like(x)", "y  =  torch.empty_like( x )"))
    style = checkstyle(center, center, [OP, TEST], [TEST])
    assert {violation.code for violation in style.before.violations} == {"F401", "I001"}
    assert style.before.unformatted == (OP,)
    assert style.after.clean
    assert style.fixed == (OP,)
    assert "json" not in (center / OP).read_text()


def test_what_ruff_cannot_mend_is_left_and_fails(center: Path):
    _append(center, OP, "\n\ndef wrong():\n    return undefined_name\n")
    style = checkstyle(center, center, [OP], [])
    assert not style.passed
    assert [violation.code for violation in style.after.violations] == ["F821"]
    assert style.after.violations[0].path == OP


def test_a_file_that_does_not_parse_is_a_finding(center: Path):
    _append(center, OP, "\ndef broken(:\n")
    style = checkstyle(center, center, [OP], [])
    assert not style.passed
    assert style.after.violations[0].code == "invalid-syntax"


def test_a_test_file_is_formatted_but_loses_no_statement(center: Path):
    _append(center, TEST, "\nimport json\nx  = 1\n")
    style = checkstyle(center, center, [TEST], [TEST])
    text = (center / TEST).read_text()
    assert "import json" in text
    assert "x = 1" in text
    assert not style.passed


def test_a_reference_is_formatted_and_may_have_a_style_of_its_own(center: Path):
    reference = "kernels/reference/center.py"
    _append(center, reference, "\nfrom typing import Optional\n\n\ndef same(l):\n    return  l == None\n")
    style = checkstyle(center, center, [reference], [reference])
    assert style.passed
    assert "from typing import Optional" in (center / reference).read_text()
    _append(center, reference, "\ndef broken(:\n")
    assert not checkstyle(center, center, [reference], [reference]).passed
