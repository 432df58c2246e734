"""Edits change one thing, leave everything else to the byte, and do nothing the second time."""

import ast
import itertools
import random
import subprocess
import sys

import pytest

from liger_dev import edits
from liger_dev.errors import BadInput

ODD = '''\
#!/usr/bin/env python
"""A module   with odd formatting."""

# A comment that must stay.
import os
from kernels.ops.beta import LigerBetaFunction   # noqa: F401  (kept)
from kernels.ops.zeta import (
    zeta_forward,  # inside parentheses
)

__all__ = ['LigerBetaFunction',   "zeta_forward" ]  # trailing

x = { 'a':1 }   # odd spacing


def   first( a ,b ):   # odd
    return a+b
# the end'''

FUNCTION = "def liger_alpha(x):\n    return x\n"

EDITS = [
    lambda text: edits.add_import(text, "kernels.ops.alpha", "alpha_forward", "F401"),
    lambda text: edits.add_import(text, "kernels.ops.gamma", "LigerGammaFunction"),
    lambda text: edits.add_import(text, "other.package", "thing"),
    lambda text: edits.add_function(text, FUNCTION),
]
TEXTS = {
    "empty": "",
    "odd": ODD,
    "crlf": ODD.replace("\n", "\r\n") + "\r\n",
    "docstring": '"""Only a docstring."""\n',
    "code": "x = 1\n",
    "form feed": '"""A page."""\n\x0c\nimport os\n\nname = "é\u2028"\n__all__ = ["é", "name"]\n',
}


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
@pytest.mark.parametrize("edit", EDITS)
def test_second_application_changes_nothing(text, edit):
    once = edit(text)
    ast.parse(once)
    assert edit(once) == once


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
def test_edits_in_any_order_do_nothing_more(text):
    for order in itertools.permutations(EDITS):
        once = text
        for edit in order:
            once = edit(once)
        again = once
        for edit in reversed(order):
            again = edit(again)
        assert again == once


@pytest.mark.parametrize("edit", EDITS)
def test_old_lines_survive(edit):
    changed = edit(ODD)
    kept = iter(changed.splitlines())
    lost = [line for line in ODD.splitlines() if not line.startswith("__all__") and line not in kept]
    assert lost == []


def test_line_ends_survive():
    text = ODD.replace("\n", "\r\n") + "\r\n"
    for edit in EDITS:
        text = edit(text)
    assert "\n" not in text.replace("\r\n", "")


def test_imports_come_out_in_isort_order(tmp_path):
    names = [
        ("kernels.ops.rms_norm", "rms_norm_forward"),
        ("kernels.ops.rms_norm", "LigerRmsNormFunction"),
        ("kernels.ops.rms_norm", "rms_norm_backward"),
        ("kernels.ops.l2_norm", "LigerL2NormFunction"),
        ("kernels.ops.Zeta", "zeta"),
        ("kernels.ops.a10", "f"),
        ("kernels.ops.a9", "f"),
        ("kernels.ops.utils", "MAX_COLS"),
        ("kernels.ops.utils", "row_settings"),
        ("kernels.ops", "name"),
    ]
    (tmp_path / "kernels").mkdir()
    rules = "line-length=120\n[lint]\nselect=['I']\n[lint.isort]\nforce-single-line=true\nlines-between-types=1\n"
    (tmp_path / "ruff.toml").write_text(rules)
    for seed in range(8):
        random.Random(seed).shuffle(names)
        text = "import os\n"
        for module, name in names:
            text = edits.add_import(text, module, name, "F401")
        (tmp_path / f"order{seed}.py").write_text(text)
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()


def test_an_import_that_is_there_in_another_form_stays():
    text = "from kernels.ops.rms_norm import (\n    rms_norm_forward,\n    rms_norm_backward,\n)\n"
    assert edits.add_import(text, "kernels.ops.rms_norm", "rms_norm_backward") == text


def test_the_body_of_a_function_is_replaced_in_place():
    text = "def f(x):\n    return x  # old\n\n\n@decorated\ndef g(x):\n    return 2\n\n\n# between\n\n\ndef h(x):\n    return 3\n"
    changed = edits.add_function(text, "def g(x, y):\n    return x + y\n")
    assert changed == text.replace("@decorated\ndef g(x):\n    return 2", "def g(x, y):\n    return x + y")


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: edits.add_import(text, "a", "b", where="kernels/functional.py"),
        lambda text: edits.add_function(text, FUNCTION, where="kernels/functional.py"),
    ],
)
def test_a_file_that_does_not_parse_is_named_with_its_line(edit):
    with pytest.raises(BadInput) as caught:
        edit("x = 1\ndef f(:\n")
    assert caught.value.where == "kernels/functional.py:2"
