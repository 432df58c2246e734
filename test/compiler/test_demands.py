"""Sizes that an op can't take are refused by the op and left out of its tests."""

from pathlib import Path

import pytest

from compiler_cases import op_graph
from compiler_cases import written

from liger_dev.case_values import SizeDemands
from liger_dev.compiler import compile_op
from liger_dev.compiler.demands import divisibility_checks
from liger_dev.loading import load
from liger_dev.profile import KernelProfile
from liger_dev.sources import catalog_source
from liger_dev.template_values import values


@pytest.fixture
def partial(tmp_path: Path):
    reference = load("rope_partial", catalog_source("rope_partial"), tmp_path)
    return reference, compile_op(reference, {})


def test_a_part_must_fit_into_its_whole(partial):
    _, compiled = partial
    assert compiled.op["op"]["limits"] == {"R": "D"}
    assert 'check_at_most("cos.shape[-1]", cos.shape[-1], x.shape[-1])' in compiled.op["op"]["forward_body"]


def test_cases_hold_no_part_larger_than_its_whole(partial):
    reference, compiled = partial
    demands = SizeDemands(compiled.op["op"]["divisors"], compiled.op["op"]["limits"])
    found = values(reference, KernelProfile.model_validate(compiled.profile), demands)
    assert found["make_inputs_signature"].startswith("dtype, D=127")
    assert "R=4" in found["make_inputs_signature"]
    assert min(map(int, found["cases"])) == 4
    assert found["refused_shapes"] == '["sin"]'  # x alone has D: one more column is another valid size


def groups(scale: str):
    body = f"""
groups = x.float().reshape(x.shape[0], num_groups, -1)
y = ((groups - groups.mean(-1, keepdim=True)) * {scale}).reshape(x.shape)
return y.to(x.dtype)
"""
    return compile_op(written("x, num_groups: int = 2", body, x=("B", "C", "T")), {}).op["op"]


def test_a_number_of_groups_is_an_argument():
    op = groups("3.0")
    assert op["counts"] == ["num_groups"]
    assert 'check_divisible("x.shape[-2]", x.shape[-2], num_groups)' in op["forward_body"]
    assert "check_static" not in op["helpers"]


def test_a_number_that_is_more_than_a_size_is_fixed():
    op = groups("(3.0 if num_groups == 2 else 4.0)")
    assert op["counts"] == []
    assert 'check_static("num_groups", num_groups, 2)' in op["forward_body"]


def test_a_part_of_an_axis_follows_from_the_whole():
    """Its size is checked against the whole's, which must divide; the trace takes a slice of the whole for it."""
    angles = {"cos": ("T", "D/2"), "sin": ("T", "D // 2")}
    graph = op_graph(
        "x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor",
        "even, odd = x[..., ::2], x[..., 1::2]\n"
        "return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)",
        x=("B", "T", "D"),
        **angles,
    )
    assert graph.sizes["D_2"] == "x.shape[-1] // 2"
    assert divisibility_checks(graph) == ['check_divisible("x.shape[-1]", x.shape[-1], 2)']


def test_a_first_dimension_that_is_read_by_itself_fixes_the_rank():
    body = "d = torch.log(x.abs() + 1.0)\nreturn torch.sqrt(d.square().mean() - 0.5 * d.mean() ** 2 + 1e-6)"
    op = compile_op(written("x: torch.Tensor", body, x=("N", "D")), {}).op["op"]
    assert {"N", "D"} <= {*op["counted_axes"]}
    assert op["forward_body"][0] == 'check_rank("x", x, 2)'
    free = compile_op(written("x: torch.Tensor", "return x.square().mean(-1)", x=("N", "D")), {}).op["op"]
    assert not any("check_rank" in line for line in free["forward_body"])


def test_dtypes_that_eager_refuses_are_left_out_of_tests_and_measurements():
    body = "y = torch.view_as_real(torch.complex(x, z)).sum(-1)\nreturn y"
    complexes = written("x: torch.Tensor, z: torch.Tensor", body, x=("N", "D"), z=("N", "D"))
    compiled = compile_op(complexes, {})
    assert compiled.op["op"]["dtypes"] == ["float32", "float16"]
    assert compiled.profile["benchmark_fixed_config"]["dtype"] == "float16"
    profile = KernelProfile.model_validate({"closest_existing_kernel": "none", **compiled.profile})
    found = values(complexes, profile, dtypes=compiled.op["op"]["dtypes"])
    assert (found["dtypes"], found["low_dtype"]) == (["torch.float32", "torch.float16"], "torch.float16")


def test_an_empty_axis_is_refused_where_eager_refuses_it_whatever_dtypes_that_takes():
    body = "y = torch.view_as_real(torch.complex(x, z))\nreturn y.reshape(x.shape[0], -1)"
    compiled = compile_op(written("x: torch.Tensor, z: torch.Tensor", body, x=("N", "D"), z=("N", "D")), {})
    assert compiled.op["op"]["least"]["N"] == 1


def test_what_is_added_in_place_does_not_widen_a_result():
    body = "y = x * 2.0\ny += z\nreturn y, x + z"
    compiled = compile_op(written("x: torch.Tensor, z: torch.Tensor", body, x=("N", "D"), z=("N", "D")), {})
    assert [output["dtype"] for output in compiled.profile["forward_outputs"]] == ["same as x", "promote(x, z)"]
