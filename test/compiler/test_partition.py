"""What forward saves and backward computes again, and how axes become rows and columns."""

import pytest

from compiler_cases import ROWS
from compiler_cases import catalogue
from compiler_cases import graph_of
from compiler_cases import op_graph

from liger_dev.compiler.partition import partition
from liger_dev.compiler.schedule import name_saved
from liger_dev.errors import ProfileRefused
from liger_dev.errors import Unsupported

X = "x: torch.Tensor"


def saved_and_recomputed(graph, saved=None):
    plan = partition(graph, saved)
    outputs = {output.value: output.name for output in graph.outputs}
    names = [outputs.get(value, name) for value, name in name_saved(graph, plan).items()]
    forward = set(graph.walk(output.value for output in graph.outputs))
    return names, [graph.names[value] for value in plan.recomputed if value in forward]


@pytest.mark.parametrize(
    "name, saved, recomputed",
    [
        ("rms_norm", ["x", "weight", "rstd"], ["x_hat"]),
        ("gemma_rms_norm", ["x", "weight", "rstd"], ["x_hat"]),
        ("layer_norm", ["x", "weight", "mean", "rstd"], ["centered", "x_hat"]),
        ("l2_norm", ["x", "inverse_norm"], ["y"]),
        ("softmax", ["y"], []),
        ("log_softmax", ["y"], []),
        ("fused_add_rms_norm", ["weight", "summed", "rstd"], ["summed_hat"]),
        ("swiglu", ["gate", "up"], ["activated"]),
        ("geglu", ["gate", "up"], ["tanh", "activated"]),
        ("geglu_erf", ["gate", "up"], ["erf", "activated"]),
        ("relu_squared", ["x"], ["positive"]),
        ("dyt", ["x", "alpha", "gamma"], ["squashed"]),
    ],
)
def test_choice_for_the_catalogue(name, saved, recomputed):
    assert saved_and_recomputed(graph_of(catalogue(name))) == (saved, recomputed)


def test_row_values_are_saved_and_tiles_are_not():
    body = "peak = x * 2\nmean = peak.mean(-1, keepdim=True)\ny = torch.exp(peak - mean)\nreturn y"
    saved, recomputed = saved_and_recomputed(op_graph(X, body, x=ROWS))
    assert "mean" in saved and "peak" in recomputed


@pytest.mark.parametrize(
    "name, saved, recomputed",
    [
        # A row value that is left out is computed again, with what it is made of.
        ("rms_norm", ["x", "weight"], ["rstd", "x_hat"]),
        ("layer_norm", ["x", "weight", "rstd"], ["mean", "centered", "x_hat"]),
        # A tile that is asked for is not computed again.
        ("layer_norm", ["weight", "rstd", "x_hat"], []),
        ("swiglu", ["gate", "up", "activated"], []),
        ("relu_squared", ["positive"], []),
        ("softmax", ["x"], ["row_max", "shifted", "numerator", "denominator", "y"]),
    ],
)
def test_a_forced_choice_is_kept(name, saved, recomputed):
    found, again = saved_and_recomputed(graph_of(catalogue(name)), saved)
    assert sorted(found) == sorted(saved)
    assert again == recomputed


@pytest.mark.parametrize(
    "name, saved, what",
    [
        ("rms_norm", ["weight", "rstd"], "backward needs 'x', which can't be computed again"),
        ("rms_norm", ["x", "weight", "sigma"], "'sigma' is no value of forward"),
        ("layer_norm", ["x", "weight", "bias", "mean", "rstd"], "backward does not use 'bias'"),
        ("rms_norm", ["x", "weight", "rstd", "dx"], "'dx' is no value of forward"),
        # x_hat in layer_norm makes mean and x needless.
        ("layer_norm", ["x", "weight", "mean", "rstd", "x_hat"], "backward does not use 'mean'"),
    ],
)
def test_a_choice_that_can_not_be_is_refused(name, saved, what):
    with pytest.raises(ProfileRefused) as caught:
        partition(graph_of(catalogue(name)), saved)
    assert caught.value.what == what
    assert caught.value.where == "backward_saved_tensors" and caught.value.todo


@pytest.mark.parametrize(
    "signature, body, shapes, rows, cols",
    [
        (X, "return x * torch.sigmoid(x)", {"x": ROWS}, (), ()),
        (X, "return x / x.sum(-1, keepdim=True)", {"x": ROWS}, ("B", "T"), ("H",)),
        (f"{X}, w: torch.Tensor", "return torch.exp(x) * w", {"x": ROWS, "w": ("H",)}, ("B", "T"), ("H",)),
        (f"{X}, w: torch.Tensor", "return torch.exp(x) * w", {"x": ("N",), "w": ("N",)}, (), ()),
    ],
)
def test_axes_become_rows_and_columns(signature, body, shapes, rows, cols):
    layout = partition(op_graph(signature, body, **shapes)).layout
    assert (layout.rows, layout.cols) == (rows, cols)


def test_a_tensor_that_lines_up_with_nothing_is_refused():
    body = "return torch.exp(x) * w.sum() + y * w.sum()"
    graph = op_graph(f"{X}, y: torch.Tensor, w: torch.Tensor", body, x=ROWS, y=("B", 1, "H"), w=("H",))
    with pytest.raises(Unsupported) as caught:
        partition(graph)
    assert caught.value.what and caught.value.where
