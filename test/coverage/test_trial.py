"""What `coverage --run` finds: an emitted op that is right says nothing, one that is spoilt is told by what differs."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
# What is spoilt is the emitted text: what is compared is what would be written to disk.
SCRIPT = """
import json, os, sys, tempfile
from pathlib import Path
os.environ["TRITON_INTERPRET"] = "1"
from liger_dev.compiler import compile_op
from liger_dev.grading.trial import disagreement
from liger_dev.loading import load
from liger_dev.sources import catalog_source
said = []
for name, old, new in json.loads(sys.argv[1]):
    for module in [module for module in sys.modules if module.split(".")[0] == "kernels"]:
        del sys.modules[module]
    reference = load(name, catalog_source(name), Path(tempfile.mkdtemp()))
    compiled = compile_op(reference, {})
    text = json.dumps(compiled.op)
    assert json.dumps(old)[1:-1] in text, f"{old} is not in {name}"
    op = json.loads(text.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))
    profile = {"closest_existing_kernel": "none", **compiled.profile}
    said.append(disagreement(reference, profile, op, Path(tempfile.mkdtemp())))
print(json.dumps(said))
"""
REFUSAL = "x.shape[-1] % 2 == 0 or [].remove('an odd number of columns has no halves')"
CASES = {
    "nothing spoilt": ("layer_norm", "", "", ""),
    "another output": (
        "swiglu",
        "tl.store(y_ptr + offsets, y,",
        "tl.store(y_ptr + offsets, y * 1.01,",
        "the output differs by",
    ),
    "another gradient": (
        "swiglu",
        "tl.store(dup_ptr + offsets, dup,",
        "tl.store(dup_ptr + offsets, -dup,",
        "dup differs by",
    ),
    "a kernel that fails": ("swiglu", "tl.store(dup_ptr", "tl.stor(dup_ptr", "the op fails in float32"),
    "a kernel that does not parse": ("swiglu", "tl.store(dup_ptr", "tl.store((dup_ptr", "the file does not parse"),
    "another dtype": (
        "swiglu",
        "dtype=torch.promote_types(gate.dtype, up.dtype)",
        "dtype=torch.float32",
        "the output is float32, the reference's is bfloat16",
    ),
    "a refusal of good sizes": (
        "swiglu",
        "check_floating(gate=gate, up=up)",
        "[].remove(1)",
        "the op fails in float32",
    ),
    "a refusal of odd sizes": ("swiglu_packed", "check_floating(x=x)", REFUSAL, ""),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    cases = [(name, old or name, new or name) for name, old, new, _ in CASES.values()]
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, json.dumps(cases)]
    env = {**os.environ, "PYTHONPATH": str(REPO), "TMPDIR": str(tmp_path_factory.mktemp("trials"))}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_an_op_is_told_by_what_differs(case, said):
    wanted = CASES[case][-1]
    assert said[case].startswith(wanted) and bool(said[case]) == bool(wanted), said[case]
