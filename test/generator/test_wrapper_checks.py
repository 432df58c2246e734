"""What the checks in the kernels' utils.py refuse, on tensors of the CPU."""

import importlib.util

import pytest
import torch

from liger_dev.render import render


@pytest.fixture(scope="module")
def utils(tmp_path_factory):
    path = tmp_path_factory.mktemp("ops") / "utils.py"
    path.write_text(render("kernels/ops/utils.py.jinja", {}))
    spec = importlib.util.spec_from_file_location("rendered_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("size", [1, 5, 300, 2**40])
def test_indices_inside_of_an_axis_are_taken(utils, dtype, size):
    largest = min(size - 1, torch.iinfo(dtype).max)
    utils.check_index("index", torch.tensor([[0, largest]], dtype=dtype), size)


@pytest.mark.parametrize(
    "index, size", [([0, 5], 5), ([-1, 0], 5), ([-5], 5), ([-100], 5), ([2**40], 5), ([0], 0), ([-1], 0)]
)
def test_an_index_outside_of_its_axis_is_refused(utils, index, size):
    with pytest.raises(IndexError, match=f"index must hold indices of at least 0 and below {size}"):
        utils.check_index("index", torch.tensor(index), size)


def test_an_index_that_is_not_kept_may_be_anything(utils):
    index = torch.tensor([-100, 3, 7])
    utils.check_index("index", index, 5, torch.tensor([False, True, False]))
    with pytest.raises(IndexError):
        utils.check_index("index", index, 5, torch.tensor([False, True, True]))


def test_no_index_at_all_is_inside(utils):
    utils.check_index("index", torch.empty(0, dtype=torch.int64), 0)
