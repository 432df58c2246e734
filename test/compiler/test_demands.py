"""Sizes that an op can't take are refused by the op and left out of its tests."""

from pathlib import Path

import pytest

from liger_dev.case_values import SizeDemands
from liger_dev.compiler import compile_op
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
    assert "R=6" in found["make_inputs_signature"]
    assert min(map(int, found["cases"])) == 6
    assert found["refused_shapes"] == '["sin"]'  # x alone has D: one more column is another valid size
