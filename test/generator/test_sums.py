"""What the kernels' utils.py gives for programs' partial sums, in Triton's interpreter."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest
import torch

from liger_dev.render import render

SCRIPT = """
import json, sys
import torch
from liger_dev.grading import interpreter
import utils

interpreter.install()
launches = []
kernel = utils._sum_partials_kernel
launch = type(kernel).__getitem__
type(kernel).__getitem__ = lambda self, grid: launches.append(grid) or launch(self, grid)
partials = torch.arange(2 * 5 * 70, dtype=torch.float32).view(2, 5, 70) / 64
dtypes = [None if one == "None" else getattr(torch, one) for one in sys.argv[1:]]
sums = utils.sum_each(partials, *dtypes)
json.dump(
    {
        "dtypes": [None if one is None else str(one.dtype) for one in sums],
        "sums": [None if one is None else one.tolist() for one in sums],
        "storages": len({one.untyped_storage().data_ptr() for one in sums if one is not None}),
        "launches": len(launches),
    },
    sys.stdout,
)
"""


@pytest.mark.parametrize(
    "dtypes, launches",
    [
        (["float32", "float32"], 1),
        (["bfloat16", "float32"], 1),
        (["None", "float16"], 1),
        (["float32", "None"], 1),
        (["None", "None"], 0),
    ],
)
def test_each_sum_has_its_dtype_and_memory(tmp_path, dtypes, launches):
    (tmp_path / "utils.py").write_text(render("kernels/ops/utils.py.jinja", {}))
    env = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    command = [sys.executable, "-c", SCRIPT, *dtypes]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    expected = torch.arange(2 * 5 * 70, dtype=torch.float64).view(2, 5, 70).sum(1) / 64
    for dtype, sums, right in zip(dtypes, said["sums"], expected, strict=True):
        if dtype == "None":
            assert sums is None
        else:
            assert sums == right.to(getattr(torch, dtype)).tolist()
    assert said["dtypes"] == [None if one == "None" else f"torch.{one}" for one in dtypes]
    assert said["storages"] == len(dtypes) - dtypes.count("None")
    assert said["launches"] == launches
