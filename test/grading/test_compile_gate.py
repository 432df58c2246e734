"""The compile gate in a real child: rms_norm for four targets, and planted errors that the interpreter accepts."""

import sys

from pathlib import Path

import pytest

from liger_dev.errors import KernelFailed
from liger_dev.grading.compile_gate import cases
from liger_dev.grading.compile_gate import divisible
from liger_dev.grading.resources import TARGETS
from liger_dev.grading.resources import failures
from liger_dev.grading.resources import read_gate
from liger_dev.grading.resources import warnings
from liger_dev.profile import TensorField
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.sandbox import run_child

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]

PLANTED = """
import torch
import triton
import triton.language as tl


@triton.jit
def _used_after_its_loop(x_ptr, n):
    for i in range(n):
        value = tl.load(x_ptr + i)
    tl.store(x_ptr, value)


@triton.jit
def _no_power_of_two(x_ptr, N: tl.constexpr):
    cols = tl.arange(0, N)
    tl.store(x_ptr + cols, tl.load(x_ptr + cols))


@triton.jit
def _too_large_for_one_warp(x_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols).to(tl.float32)
    tl.store(x_ptr + cols, x * tl.sum(x))


class LigerPlantedFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias, eps):
        assert eps == 1e-6
        if bias is None:
            _no_power_of_two[(1,)](x, N=48)
        _too_large_for_one_warp[(1,)](x, BLOCK=8192, num_warps=1)
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        _used_after_its_loop[(1,)](dy, dy.numel())
        return dy, None, None
"""


def workspace(root, op):
    """A workspace with one op, `planted`: two inputs, one optional."""
    profile = parse_profile((ROOT / "profiles" / "rms_norm.yaml").read_text(), "profiles/rms_norm.yaml")
    inputs = [profile.forward_inputs[0], TensorField(name="bias", shape=["H"], dtype="float", optional=True)]
    planted = profile.model_copy(
        update={
            "operation_name": "planted",
            "function_class_name": "LigerPlantedFunction",
            "forward_inputs": inputs,
            "benchmark_x_values_suggestion": [1024, 4096],
        }
    )
    for folder in ("profiles", "kernels/ops"):
        (root / folder).mkdir(parents=True)
    (root / "profiles" / "planted.yaml").write_text(print_profile(planted))
    (root / "kernels" / "__init__.py").touch()
    (root / "kernels" / "ops" / "__init__.py").touch()
    (root / "kernels" / "ops" / "planted.py").write_text(op)
    return root


def gate(name, root, scratch):
    out = scratch / "gate.json"
    done = run_child(
        [sys.executable, "-m", "liger_dev.grading.compile_gate", name, "--root", str(root), "--out", str(out)],
        scratch=scratch,
        env={"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    return done, out.read_text() if out.exists() else ""


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_rms_norm_compiles_for_every_target(scratch):
    done, text = gate("rms_norm", ROOT, scratch)
    assert done.returncode == 0, done.stderr
    resources = read_gate(text)
    assert failures(resources) == ()
    assert {(row.phase, row.target) for row in resources} == {(p, t) for p in ("forward", "backward") for t in TARGETS}
    assert all(row.registers > 0 and "num_warps=" in row.variant for row in resources)
    assert any(row.shared_bytes > 0 for row in resources)
    assert len({str(row) for row in resources}) == len(resources), "a launch was compiled twice"


def test_what_only_the_compiler_refuses_is_a_failure(tmp_path, scratch):
    done, text = gate("planted", workspace(tmp_path / "copy", PLANTED), scratch)
    assert done.returncode == 0, done.stderr
    resources = read_gate(text)
    after_loop = [row for row in resources if row.kernel == "_used_after_its_loop"]
    no_power = [row for row in resources if row.kernel == "_no_power_of_two"]
    assert {row.target for row in after_loop} == set(TARGETS) and all("value" in row.error for row in after_loop)
    assert no_power and all("power of 2" in row.error for row in no_power), "launched only if bias is not given"
    assert len(failures(resources)) == len(after_loop) + len(no_power)
    assert any("_too_large_for_one_warp for sm_90" in line for line in warnings(resources))


def test_an_8_bit_type_that_old_hardware_lacks_is_no_failure_there(tmp_path, scratch):
    narrowed = "x = tl.load(x_ptr + cols).to(tl.float8e4nv).to(tl.float32)"
    op = PLANTED.replace("x = tl.load(x_ptr + cols).to(tl.float32)", narrowed)
    assert op != PLANTED
    done, text = gate("planted", workspace(tmp_path / "copy", op), scratch)
    assert done.returncode == 0, done.stderr
    found = {row.target: row for row in read_gate(text) if row.kernel == "_too_large_for_one_warp"}
    assert found["sm_80"].lacks == "fp8e4nv" and not found["sm_80"].error
    assert not found["sm_90"].lacks and not found["sm_90"].error and found["sm_90"].registers


def test_an_axis_that_is_a_part_of_another_keeps_within_it():
    """R columns of a rotation at most as many as the head dimension D, which the benchmark varies."""
    profile = parse_profile((ROOT / "profiles" / "rms_norm.yaml").read_text(), "profiles/rms_norm.yaml")
    tensors = [
        TensorField(name="cos", shape=["T", "R"], dtype="float"),
        TensorField(name="x", shape=["T", "D"], dtype="float"),
    ]
    partial = profile.model_copy(
        update={
            "forward_inputs": tensors,
            "benchmark_variable": "D",
            "benchmark_x_values_suggestion": [64, 256],
            "benchmark_fixed_config": {"T": 2048, "R": 10, "dtype": "bfloat16"},
        }
    )
    assert [case.sizes for case in cases(partial)][:2] == [{"D": 4096, "R": 4096, "T": 8}, {"D": 256, "R": 10, "T": 8}]


def test_an_op_that_fails_in_python_says_how(tmp_path, scratch):
    op = PLANTED.replace("assert eps == 1e-6", "raise ValueError('rows too long')")
    done, text = gate("planted", workspace(tmp_path / "copy", op), scratch)
    assert done.returncode == 0, done.stderr
    with pytest.raises(KernelFailed, match="ValueError: rows too long"):
        read_gate(text)


def test_an_op_that_ends_the_child_early_has_failed(tmp_path, scratch):
    done, text = gate("planted", workspace(tmp_path / "copy", "import os\nprint('PASS')\nos._exit(0)\n"), scratch)
    assert done.returncode == 0
    with pytest.raises(KernelFailed):
        read_gate(text)


def test_a_machine_without_an_assembler_is_no_verdict_on_a_kernel(tmp_path, scratch):
    op = PLANTED.replace("import torch\n", "import torch\n\nraise FileNotFoundError('ptxas')\n", 1)
    done, text = gate("planted", workspace(tmp_path / "copy", op), scratch)
    assert done.returncode == 1 and "FileNotFoundError: ptxas" in done.stderr
    assert not text


def test_a_size_that_the_op_refuses_is_rounded_up():
    path = ROOT / "profiles" / "rms_norm.yaml"
    profile = parse_profile(path.read_text(), str(path))
    case = next(cases(profile))
    fitting = divisible(profile, case, "x.shape[-1] must be a multiple of 6, not 4096")
    assert fitting is not None and fitting.sizes == {**case.sizes, "H": 4098}
    assert divisible(profile, case, "x must have 3 dimensions, not 2") is None
