"""The noise that a bound follows from: it reaches what rounds inside of an operation, and nothing that is exact."""

import importlib.util

import pytest
import torch

from liger_dev.grading import truth
from liger_dev.grading.truth import noise
from liger_dev.grading.truth import outcome
from liger_dev.render import render

EPS = torch.finfo(torch.float32).eps


def found(function, **inputs):
    """The largest error that noise makes, for each tensor."""
    torch.manual_seed(0)
    leaves = {name: x.double() for name, x in inputs.items()}
    wanted = tuple(leaves)
    y = function(**leaves)
    upstream = {"0": torch.randn(y.shape, dtype=torch.float64)}
    true = outcome(function, leaves, {}, upstream, wanted, None)
    return noise(lambda: outcome(function, leaves, {}, upstream, wanted, None), true)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.log_softmax(x, -1),
        lambda x: torch.logsumexp(x, -1) - x.squeeze(-1),
        lambda x: torch.nn.functional.layer_norm(x, (1,), eps=1.0) + torch.softmax(x, -1),
    ],
    ids=["log_softmax", "logsumexp", "softmax"],
)
def test_what_cancels_exactly_in_eager_has_rounded_on_its_way(function):
    """Rows of one element: the result is an exact number, and its parts are not."""
    errors = found(function, x=torch.randn(6, 1))
    assert EPS / 100 < max(errors.values()) < 20 * EPS


def test_the_terms_of_a_sum_round():
    """The result is near 0, its terms are not: one order of adding them up is off by more than the result's last place."""
    x = torch.tensor([1.0, 1e-4, -1.0], dtype=torch.float64)
    errors = found(lambda x: x.sum(), x=x)
    assert EPS / 100 < errors["output 0"] < 2 * EPS


def test_a_maximum_is_found_again():
    """Backward looks for the element that equals the maximum."""
    errors = found(lambda x: x / x.amax(-1, keepdim=True), x=torch.rand(5, 7) + 0.5)
    assert 0 < errors["gradient of x"] < 100 * EPS


def test_a_long_sum_in_one_number_gets_no_room():
    torch.manual_seed(0)
    x = torch.randn(1 << 22)
    errors = found(lambda x: x.sum(), x=x)
    total = torch.zeros(())
    for part in x.view(-1, 64).sum(-1):
        total += part
    assert (total.double() - x.double().sum()).abs() > 4 * errors["output 0"]


def test_generated_tests_know_the_same_operations(tmp_path):
    """A workspace's tests stand alone, so they say it again: a list that only one of the two has grown parts their bounds."""
    (tmp_path / "utils.py").write_text(render("test/utils.py.jinja", {}))
    spec = importlib.util.spec_from_file_location("generated_utils", tmp_path / "utils.py")
    generated = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generated)
    assert generated._COMPOSITES.keys() == truth._COMPOSITES.keys() and len(truth._COMPOSITES) > 5
    assert set(generated._SUMS) == set(truth._SUMS) and set(generated._PICKS) == set(truth._PICKS)
    assert set(generated.LOW_PRECISION) == set(truth.LOW)
