"""A workspace with one tiny kernel, for tests that run its real files in real children."""

import textwrap

from collections.abc import Callable
from pathlib import Path

import pytest

OP = '''
"""Subtracts the mean of each row: y = x - sum(x) / n_cols."""

import torch
import triton
import triton.language as tl


@triton.jit
def _center_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    offsets = rows * n_cols + cols
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1, keep_dims=True) / n_cols
    tl.store(y_ptr + offsets, x - mean, mask=mask)


def center(x):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    BLOCK_ROWS, BLOCK_COLS = 4, triton.next_power_of_2(n_cols)
    _center_kernel[(triton.cdiv(n_rows, BLOCK_ROWS),)](
        x, y, n_rows, n_cols, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLS=BLOCK_COLS, num_warps=4
    )
    return y


class LigerCenterFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return center(x)

    @staticmethod
    def backward(ctx, dy):
        return center(dy)
'''

TEST = """
import pytest
import torch

from kernels.ops.center import center
from test.utils import TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_center(dtype):
    torch.manual_seed(7)
    x = torch.randn(3, 5).to(dtype)
    expected = (x.double() - x.double().mean(-1, keepdim=True)).to(dtype)
    torch.testing.assert_close(center(x), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_shape():
    assert center(torch.zeros(2, 3)).shape == (2, 3)
"""

REFERENCE = '''
"""Subtracts the mean of each row."""

import torch


def center(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(-1, keepdim=True)
'''

PROFILE = """
operation_name: center
function_class_name: LigerCenterFunction
module_class_name: LigerCenter
functional_name: liger_center
tier: 2
tier_description: reduction
closest_existing_kernel: none
forward_inputs: [{name: x, shape: [M, N], dtype: float}]
forward_outputs: [{name: y, shape: [M, N], dtype: float}]
forward_computation: y = x - sum(x) / N
precision_sensitive_ops: [sum]
backward_saved_tensors: []
backward_recompute: []
gradient_formulas: {x: dx = dy - sum(dy) / N}
grid_dimensions: {forward: "(n_rows,)", backward: "(n_rows,)"}
grid_description: one row a program
block_size_source: next_power_of_2(n_cols)
needs_sm_parallelism: false
module_init_params: []
learnable_params: []
benchmark_variable: N
benchmark_x_label: columns
benchmark_x_values_suggestion: [1024]
benchmark_providers: [liger, torch]
benchmark_fixed_config: {M: 64}
"""

PYPROJECT = """
[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "--strict-markers -ra"

[tool.ruff]
line-length = 120

[tool.ruff.lint]
select = ["E", "F", "I"]
ignore = ["E501"]

[tool.ruff.lint.isort]
force-single-line = true
lines-between-types = 1
"""

OP_PATH = "kernels/ops/center.py"
TEST_PATH = "test/kernels/test_center.py"

FILES = {
    "pyproject.toml": PYPROJECT,
    "kernels/__init__.py": "",
    "kernels/ops/__init__.py": "",
    "kernels/ops/center.py": OP,
    "kernels/modules/__init__.py": "",
    "kernels/modules/center.py": '"""Nothing to own."""\n',
    "kernels/functional.py": '"""The functional forms."""\n',
    "kernels/reference/__init__.py": "",
    "kernels/reference/center.py": REFERENCE,
    "profiles/center.yaml": PROFILE,
    "test/__init__.py": "",
    "test/utils.py": "TOLERANCE = 1e-2\n",
    "test/kernels/__init__.py": "",
    "test/kernels/conftest.py": "",
    "test/kernels/test_center.py": TEST,
    "benchmark/scripts/benchmark_center.py": '"""Measures nothing."""\n',
}


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(textwrap.dedent(text).lstrip("\n"))


@pytest.fixture
def center(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        write(tmp_path, path, text)
    return tmp_path


@pytest.fixture
def plain(center: Path) -> Path:
    """The same workspace without torch, for what is about the children and not about kernels: ten times as fast."""
    write(
        center, OP_PATH, '"""Gives back what it takes."""\n\nimport math\n\n\ndef center(x):\n    return math.fabs(x)\n'
    )
    test = "from kernels.ops.center import center\n\n\ndef test_center():\n    assert center(3) == 3\n"
    write(center, TEST_PATH, f"{test}\n\ndef test_shape():\n    assert center(0) == 0\n")
    return center


@pytest.fixture
def edit(center: Path) -> Callable[[str, str, str], None]:
    """Replaces a text of a file, which must be there: a test of a planted bug must really plant it."""

    def replace(path: str, old: str, new: str) -> None:
        text = (center / path).read_text()
        assert old in text, f"{path} holds no {old!r}"
        (center / path).write_text(text.replace(old, new))

    return replace
