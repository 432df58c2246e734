"""What forward saves and backward computes again, and how axes become rows and columns."""

import pytest

from compiler_cases import ROWS
from compiler_cases import catalogue_graph
from compiler_cases import op_graph

from liger_dev.compiler.fused import fuse
from liger_dev.compiler.layout import Layout
from liger_dev.compiler.partition import partition
from liger_dev.compiler.schedule import forward_launches
from liger_dev.compiler.schedule import saved_places
from liger_dev.errors import ProfileRefused

X = "x: torch.Tensor"


def saved_and_recomputed(graph, saved=None):
    plan = partition(graph, saved)
    names = [place.name for place in saved_places(graph, plan).values()]
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
    assert saved_and_recomputed(catalogue_graph(name)) == (saved, recomputed)


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
    found, again = saved_and_recomputed(catalogue_graph(name), saved)
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
        partition(catalogue_graph(name), saved)
    assert caught.value.what == what
    assert caught.value.where == "backward_saved_tensors" and caught.value.todo


@pytest.mark.parametrize(
    "signature, body, shapes, layout",
    [
        (X, "return x * torch.sigmoid(x)", {"x": ROWS}, Layout((), ROWS, flat=True)),
        (X, "return x / x.sum(-1, keepdim=True)", {"x": ROWS}, Layout(("B", "T"), ("H",))),
        (f"{X}, w: torch.Tensor", "return torch.exp(x) * w", {"x": ROWS, "w": ("H",)}, Layout(("B", "T"), ("H",))),
        (f"{X}, w: torch.Tensor", "return torch.exp(x) * w", {"x": ("N",), "w": ("N",)}, Layout((), ("N",), flat=True)),
        # Rows that do not lie together in memory, and a tensor that lacks an axis in the middle.
        (X, "return x / x.sum(1, keepdim=True)", {"x": ROWS}, Layout(("B", "H"), ("T",))),
        (f"{X}, z: torch.Tensor", "return x * z", {"x": ROWS, "z": ("B", 1, "H")}, Layout(("B", "T"), ("H",))),
    ],
)
def test_axes_become_rows_and_columns(signature, body, shapes, layout):
    graph = op_graph(signature, body, **shapes)
    (launch,) = forward_launches(graph, partition(graph), "op")
    assert launch.single.layout == layout


def test_a_sum_over_all_rows_comes_before_the_rows_that_need_it():
    body = "return torch.exp(x) * w.sum() + y * w.sum()"
    graph = op_graph(f"{X}, y: torch.Tensor, w: torch.Tensor", body, x=ROWS, y=("B", 1, "H"), w=("H",))
    total, rows = forward_launches(graph, partition(graph), "op")
    assert [store.place.name for store in total.looped[0].stores] == ["sum_w"] and total.single is None
    assert "sum_w" in [place.name for place in rows.single.loads.values()]


@pytest.mark.parametrize(
    ("signature", "body", "fused"),
    [
        (X, "return torch.logsumexp(x, -1).mean()", True),
        # A total that the wrapper can take before the launch; one that is known only after it.
        (f"{X}, w: torch.Tensor", "return (torch.logsumexp(x, -1) * w).sum() / w.detach().sum()", True),
        (X, "return (x.square().sum() / x.sum()).sqrt()", False),
        # The gradient of w is a sum over rows.
        (f"{X}, v: torch.Tensor", "return torch.logsumexp(x * v, -1).mean()", False),
        (X, "return torch.logsumexp(x, -1)", False),
        (X, "return torch.logsumexp(x, -1).mean(), x.sum(-1)", False),
    ],
)
def test_forward_makes_the_gradients_of_a_loss(signature, body, fused):
    shapes = {name: shape for name, shape in (("x", ROWS), ("w", ("B", "T")), ("v", ("H",))) if f"{name}:" in signature}
    graph = op_graph(signature, body, **shapes)
    plan = fuse(graph, partition(graph))
    assert (plan.fused is not None) == fused
    if fused:
        (launch,) = forward_launches(graph, plan, "op")
        (kernel,) = launch.looped
        assert {"dx"} <= {store.place.name for store in kernel.stores if store.guard}
        assert plan.saved == tuple(item.value for item in graph.inputs)


def test_an_output_keeps_how_it_is_rounded_when_its_rows_are_told_apart():
    """GroupNorm ends with a cast down, and its rows consist of channels."""
    graph = catalogue_graph("group_norm")
    before = [output.cast_down for output in graph.outputs]
    partition(graph)
    assert [output.cast_down for output in graph.outputs] == before == [True]
