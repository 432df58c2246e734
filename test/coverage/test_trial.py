"""What `coverage --run` finds: an emitted op that is right says nothing, one that is spoilt is told by what differs."""

import os
import subprocess
import sys

from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
# The spoilt line is in the emitted text: what is compared is what would be written to disk.
SCRIPT = """
import json, os, sys, tempfile
from pathlib import Path
os.environ["TRITON_INTERPRET"] = "1"
from liger_dev.compiler import compile_op
from liger_dev.grading.trial import disagreement
from liger_dev.loading import load
from liger_dev.sources import catalog_source
name, old, new = sys.argv[1:]
reference = load(name, catalog_source(name), Path(tempfile.mkdtemp()))
compiled = compile_op(reference, {})
text = json.dumps(compiled.op)
assert json.dumps(old)[1:-1] in text, "the text to spoil is not there"
op = json.loads(text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))
profile = {"closest_existing_kernel": "none", **compiled.profile}
print(disagreement(reference, profile, op, Path(tempfile.mkdtemp())))
"""


def trial(name, old="", new=""):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, name, old or name, new or name]
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_op_that_is_right_is_told_nothing():
    assert trial("layer_norm") == ""


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("swiglu", "tl.store(y_ptr + offsets, y,", "tl.store(y_ptr + offsets, y * 1.01,", "the output differs by"),
        ("swiglu", "tl.store(dup_ptr + offsets, dup,", "tl.store(dup_ptr + offsets, -dup,", "dup differs by"),
        ("swiglu", "tl.store(dup_ptr", "tl.stor(dup_ptr", "the op fails for sizes"),
    ],
)
def test_a_spoilt_op_is_told_by_what_differs(name, old, new, said):
    assert trial(name, old, new).startswith(said)
