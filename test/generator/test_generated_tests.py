"""The generated test file is itself tested: planted bugs in an op must fail it, the op as it is must pass.

The op stands here as text of its own, so that these tests say something about the test file alone.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from kernel_cases import ROOT
from kernel_cases import load

from liger_dev import edits
from liger_dev.generator import TEMPLATES
from liger_dev.generator import functional_source
from liger_dev.generator import kernel_files
from liger_dev.skeleton import skeleton
from liger_dev.template_values import values

OPS = ROOT / "test" / "generator" / "ops"

# Bug: (text of the op, text with the bug).
BUGS = {
    "offset left out of forward": ("y = (weight + offset) * x_hat", "y = weight * x_hat"),
    "offset left out of backward": ("dx_hat = dy * (weight + offset)", "dx_hat = dy * weight"),
    "mask one column too wide": ("mask = row_mask & col_mask\n    off", "mask = row_mask & (cols <= n_cols)\n    off"),
    "eps left out": ("/ n_cols + eps)", "/ n_cols)"),
    "last rows left out of dweight": ("tl.cdiv(n_rows, BLOCK_ROWS), tl", "tl.cdiv(n_rows, BLOCK_ROWS) - 1, tl"),
    "mean over the block": ("keep_dims=True) / n_cols + eps", "keep_dims=True) / BLOCK_COLS + eps"),
    "second term left out of dx": ("dx = (dx_hat - x_hat * mean_dot) * rstd", "dx = dx_hat * rstd"),
    "output in the dtype of x": ("dtype=torch.promote_types(x.dtype, weight.dtype)", "dtype=x.dtype"),
    "strides of x ignored": ("    x = x.contiguous()\n", ""),
    "strides of dy ignored": ("    dy = dy.contiguous()\n", ""),
    "output written into x": ("y = torch.empty_like(x, dtype=torch.promote_types(x.dtype, weight.dtype))", "y = x"),
    "dx written into the saved x": ("dx = torch.empty_like(x) if", "dx = x if"),
    "dweight summed in bfloat16": ("dweight_partial.sum(0)", "dweight_partial.to(torch.bfloat16).sum(0)"),
    "row sum in bfloat16": ("tl.sum(x * x, axis=1", "tl.sum((x * x).to(tl.bfloat16).to(tl.float32), axis=1"),
    "gradients given for all or none": ("needs_dx=ctx.needs_input_grad[0]", "needs_dx=all(ctx.needs_input_grad[:2])"),
    "weight of another shape taken": ('    check_shape("weight", weight, (n_cols,))\n', ""),
    "other dtypes taken": ("    check_floating(x=x, weight=weight)\n", ""),
    "nothing computed": ("tl.store(y_ptr + offsets, y, mask=mask)", "tl.store(y_ptr + offsets, y * 0, mask=mask)"),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workspace of rms_norm with the op of `ops/rms_norm.py`."""
    root = tmp_path_factory.mktemp("workspace")
    reference, profile = load("rms_norm")
    functional = edits.add_import("", "kernels.ops.rms_norm", "LigerRmsNormFunction")
    texts = {
        **{change.path: change.content for change in skeleton(root).changes},
        **kernel_files(reference, profile, {}, TEMPLATES[1:3]),
        "kernels/functional.py": edits.add_function(functional, functional_source(values(reference, profile))),
        "kernels/reference/rms_norm.py": reference.text,
        "kernels/ops/rms_norm.py": (OPS / "rms_norm.py").read_text(),
        "pytest.ini": "[pytest]\npythonpath = .\nfilterwarnings = error\n",
    }
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


SEEDS = ("0", "1", "2")
TEST = "test/kernels/test_rms_norm.py"


@pytest.fixture(scope="module")
def outcomes(workspace, tmp_path_factory):
    """Exit code and output of the test file against each bug, and against the right op with several seeds."""
    folder = tmp_path_factory.mktemp("mutants")
    runs = {}
    for bug, (old, new) in BUGS.items():
        root = shutil.copytree(workspace, folder / bug.replace(" ", "-"))
        op = root / "kernels" / "ops" / "rms_norm.py"
        text = op.read_text()
        assert old in text, f"the op has no text to plant '{bug}' at"
        op.write_text(text.replace(old, new))
        runs[bug] = [str(root), SEEDS[0], TEST]
    runs |= {seed: [str(workspace), seed, TEST] for seed in SEEDS}
    command = [sys.executable, str(ROOT / "test" / "generator" / "forked_pytest.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, input=json.dumps(runs), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_op_passes(outcomes, seed):
    code, output = outcomes[seed]
    assert code == 0, output
    assert " passed" in output


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(outcomes, bug):
    """Exit code 1 is a failed test, a negative one a process that a store out of bounds ended."""
    code, output = outcomes[bug]
    assert code == 1 or code < 0, f"exit code {code}: {output}"
