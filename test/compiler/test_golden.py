"""Emitted op files, whole: a change of the compiler shows here as a change of text.

`pytest test/compiler/test_golden.py --update-golden` writes what is emitted now; look at the difference before it is
committed.
"""

import json
import os
import subprocess
import sys

from functools import lru_cache
from pathlib import Path

import pytest

from compiler_cases import CASES
from compiler_cases import GOLDEN
from compiler_cases import catalogue

from liger_dev.compiler import compile_op
from liger_dev.generator import OP
from liger_dev.profile import KernelProfile
from liger_dev.render import render_all
from liger_dev.template_values import values

FOLDER = Path(__file__).parent / "golden"
REPO = Path(__file__).parents[2]


@lru_cache(maxsize=None)
def compiled(name):
    return compile_op(catalogue(name), {})


def op_text(name):
    """The op file without its stamp, which holds hashes of other files."""
    made = compiled(name)
    facts = {"closest_existing_kernel": "none", **made.profile}
    named = {**values(catalogue(name), KernelProfile.model_validate(facts)), **made.op}
    (text,) = render_all([OP], named).values()
    return text


@pytest.mark.parametrize("name", GOLDEN)
def test_emitted_file_is_the_golden_one(name, request):
    path = FOLDER / f"{name}.py"
    text = op_text(name)
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} changed; --update-golden takes the new text"


def test_no_golden_file_is_left_over():
    assert sorted(path.stem for path in FOLDER.iterdir() if path.suffix == ".py") == sorted(GOLDEN)


_CHILD = """
import json, sys
from compiler_cases import CASES, catalogue
from liger_dev.compiler import compile_op
compiled = {name: compile_op(catalogue(name), {}) for name in CASES}
print(json.dumps({name: [c.profile, c.op] for name, c in compiled.items()}))
"""


def test_hash_seeds_change_nothing():
    """Sets of strings iterate in an order that differs from process to process: here, and in one with another seed."""
    path = os.pathsep.join([str(REPO), str(Path(__file__).parent)])
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHILD], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    there = json.loads(done.stdout)
    for name in CASES:
        here = compiled(name)
        assert json.loads(json.dumps([here.profile, here.op])) == there[name], name
