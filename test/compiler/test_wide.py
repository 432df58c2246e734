"""Kernels for wide rows: which operations have one beside the one that holds its rows, and what both compute."""

import os
import subprocess
import sys

from pathlib import Path

import pytest
import torch

from compiler_cases import catalogue
from compiler_cases import written
from run_long_rows import BLOCKS
from run_long_rows import results

from liger_dev.compiler import compile_op
from liger_dev.profile import KernelProfile
from liger_dev.render import render
from liger_dev.template_values import values

REPO = Path(__file__).parents[2]
OP = "kernels/ops/{{ operation_name }}.py.jinja"
SIGNATURE = "x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-6"
SHAPES = {"x": ("B", "T", "H"), "weight": ("H",), "bias": ("H",), "other": ("B", "T", "H"), "y": ("B", "T", "D")}
RMS = "torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)"
BODIES = {
    "layer_norm": "return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)",
    "scaled_rows": f"return x * {RMS} * weight + bias",
    "apart": "return (x - x.mean(-1, keepdim=True)) * weight + bias",
    "deviation": "return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) * weight + bias",
}
OTHERS = {
    "two tensors' rows": (f"return x * {RMS} * other", "x: torch.Tensor, other: torch.Tensor"),
    "a head's dimension": (f"return y * {RMS.replace('x', 'y')}", "y: torch.Tensor"),
    "weighted before it is reduced": (
        "y = x * weight + bias\nreturn y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)",
        "x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor",
    ),
    "a maximum": (
        "return x / x.abs().amax(-1, keepdim=True) * weight + bias",
        "x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor",
    ),
    "nothing reduced": ("return x * weight + bias", "x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor"),
}


def names(op):
    return [kernel["name"] for kernel in op["kernels"] if "_forward" in kernel["name"]]


@pytest.mark.parametrize("name", ["l2_norm", "layer_norm", "modulated_layer_norm", "modulated_rms_norm", "rms_norm"])
def test_a_row_that_is_summed_up_once_has_two_kernels(name):
    op = compile_op(catalogue(name), {}).op["op"]
    held, wide = op["kernels"][:2]
    assert names(op) == [f"_{name}_forward_kernel", f"_{name}_forward_wide_kernel"]
    assert "n_cols: tl.constexpr" in wide["parameters"] and "n_cols" in held["parameters"]
    assert "LATE: tl.constexpr" not in held["parameters"]
    assert "if n_cols <= WIDE_ROW:" in op["forward_body"]
    assert sum("tl.load(x_ptr" in line for line in wide["lines"]) == 2, "a row is read twice, its mean or no mean"


@pytest.mark.parametrize("why", OTHERS)
def test_others_have_one(why):
    body, tensors = OTHERS[why]
    signature = f"{tensors}, eps: float = 1e-6"
    shapes = {name: shape for name, shape in SHAPES.items() if f"{name}: " in signature}
    op = compile_op(written(signature, body, **shapes), {}).op["op"]
    assert names(op) == ["_op_forward_kernel"]


def test_a_width_that_a_reviewer_fixed_has_one():
    op = compile_op(catalogue("layer_norm"), {"block_cols": 16384}).op["op"]
    assert names(op) == ["_layer_norm_forward_kernel"] and any("LATE=" in line for line in op["forward_body"])


@pytest.mark.parametrize("name", ["apart", "seen", "lane_means", "total", "shift", "rstd"])
def test_locals_make_way_for_a_number_of_the_same_name(name):
    body = f"return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, None, 1e-5) * {name}"
    made = written(f"x: torch.Tensor, weight: torch.Tensor, {name}: float = 2.0", body, x=SHAPES["x"], weight=("H",))
    kernels = [kernel for kernel in compile_op(made, {}).op["op"]["kernels"] if "_forward" in kernel["name"]]
    assert len(kernels) == 2 and all(f"{name}: tl.constexpr" in kernel["parameters"] for kernel in kernels)
    for line in (line.strip() for kernel in kernels for line in kernel["lines"]):
        assert not line.startswith((f"{name} = ", f"{name} += "))


def inputs(n_cols):
    """Rows far from zero, which cost a plain sum of squares its digits."""
    generator = torch.Generator().manual_seed(n_cols)
    x = torch.randn(2, 3, n_cols, generator=generator) + torch.tensor([0.0, 300.0, -70.0])[:, None]
    return [x, torch.randn(n_cols, generator=generator), torch.randn(n_cols, generator=generator)]


def huge():
    """Rows of one number each, whose square is no number."""
    return [torch.full((2, 3, 40), 2.0**80), *inputs(40)[1:]]


def eager(name):
    scope = {"torch": torch}
    exec(f"def op(x, weight, bias, eps=1e-6):\n    {BODIES[name]}", scope)
    return scope["op"]


SIZES = [9, 16, 40, 67]  # columns, by blocks of 8: a rest of one and of three, and none


@pytest.fixture(scope="module")
def in_triton(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    given = {}
    for name, body in BODIES.items():
        made = compile_op(written(SIGNATURE, body, **{name: SHAPES[name] for name in ("x", "weight", "bias")}), {})
        profile = KernelProfile.model_validate({"closest_existing_kernel": "none", **made.profile})
        named = {**values(made.reference, profile), **made.op}
        assert names(made.op["op"]) == ["_op_forward_kernel", "_op_forward_wide_kernel"]
        for size in SIZES:
            (folder / f"{name}_{size}.py").write_text(render(OP, named))
            given[f"{name}_{size}"] = (named["function_class_name"], inputs(size), [torch.randn(2, 3, size)])
        if name == "layer_norm":
            (folder / f"{name}_huge.py").write_text(render(OP, named))
            given[f"{name}_huge"] = (named["function_class_name"], huge(), [torch.randn(2, 3, 40)])
    torch.save(given, folder / "given.pt")
    path = os.pathsep.join([str(REPO), str(Path(__file__).parent)])
    env = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "run_long_rows.py"), str(folder), "1e-6"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return given, torch.load(folder / "found.pt")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BODIES)
def test_a_wide_row_is_what_a_held_one_is(name, size, dtype, in_triton):
    assert min(SIZES) > BLOCKS[1], "a row of these takes several blocks"
    given, found = in_triton
    _, arguments, upstreams = given[f"{name}_{size}"]
    wanted = results(eager(name), [x.to(dtype).double() for x in arguments], upstreams)
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    for wide, held, right in zip(
        found[f"{name}_{size}", dtype, True], found[f"{name}_{size}", dtype, False], wanted, strict=True
    ):
        torch.testing.assert_close(wide.double(), right, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(wide, held, rtol=tolerance, atol=tolerance)


def test_a_row_of_one_huge_number_has_no_variance(in_triton):
    given, found = in_triton
    _, (x, _, bias), _ = given["layer_norm_huge"]
    wide, held = (found["layer_norm_huge", torch.float32, way] for way in (True, False))
    assert torch.equal(wide[0], bias.expand_as(x)) and torch.equal(held[0], wide[0])
    for one, other in zip(wide[1:], held[1:], strict=True):
        torch.testing.assert_close(one, other)
