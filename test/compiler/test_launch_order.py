"""References whose rows depend on what another launch computes: which kernels there are, and what they hand on."""

import pytest

from compiler_cases import catalogue_graph
from compiler_cases import op_graph

from liger_dev.compiler.backward import backward_launches
from liger_dev.compiler.partition import partition
from liger_dev.compiler.schedule import forward_launches
from liger_dev.compiler.schedule import specs_of

X = "x: torch.Tensor"
ROWS = ("B", "T", "H")


def kernels(launches):
    """Rows, columns and stores of the first kernel of each launch."""
    found = []
    for launch in launches:
        spec = specs_of(launch)[0]
        kept = [*(s.place.name for s in spec.stores), *(a.name for a in spec.accumulators)]
        found.append(("".join(spec.layout.rows), "".join(spec.layout.cols), *kept))
    return found


def scheduled_kernels(graph):
    plan = partition(graph)
    return kernels(forward_launches(graph, plan, "op")), kernels(backward_launches(graph, plan, "op"))


@pytest.mark.parametrize(
    "body, shapes, forward, backward",
    [
        (
            "return x / x.norm()",
            {"x": ("B", "T", "H")},
            [("BT", "H", "row_sum_of_squares"), ("", "BTH", "y")],
            [("BT", "H", "row_dot"), ("", "BTH", "dx")],
        ),
        (
            "return (x - x.mean()) / (x.std() + 1e-5)",
            {"x": ("B", "T", "H")},
            [("BT", "H", "row_sum_x"), ("BT", "H", "row_sum_of_squares"), ("", "BTH", "y")],
            [("BT", "H", "row_dot", "row_sum_dy"), ("", "BTH", "dx")],
        ),
        (
            "return x / x.abs().max()",
            {"x": ("B", "T", "H")},
            [("BT", "H", "row_largest"), ("", "BT", "largest"), ("", "BTH", "y")],
            [("BT", "H", "row_dot", "row_total"), ("", "BTH", "dx")],
        ),
        (
            "return torch.softmax(x.flatten(), 0).view_as(x)",
            {"x": ("B", "T", "H")},
            [("BT", "H", "row_max"), ("", "BT", "largest"), ("BT", "H", "row_denominator"), ("", "BTH", "y")],
            [("BT", "H", "row_dot"), ("", "BTH", "dx")],
        ),
        (
            "return x.square().sum().sqrt()",
            {"x": ("B", "T", "H")},
            [("BT", "H", "row_sum_of_squares"), ("", "", "y")],
            [("", "BTH", "dx")],
        ),
        (
            "return x.amax((0, 1))",
            {"x": ("B", "T", "H")},
            [("H", "BT", "y")],
            [("H", "BT", "dx")],
        ),
        (
            "c = x - x.mean(0)\nreturn c * torch.rsqrt(c.square().mean(-1, keepdim=True) + 1e-6)",
            {"x": ("B", "H")},
            [("H", "B", "mean_x"), ("B", "H", "y")],
            [("B", "H", "rstd", "ratio"), ("H", "B", "dx")],
        ),
        (
            "return torch.softmax(x, 0) + torch.softmax(x, 1)",
            {"x": ("B", "H")},
            [("H", "B", "row_max", "denominator"), ("B", "H", "row_max_2", "total"), ("B", "H", "y")],
            [("B", "H", "dot"), ("H", "B", "dot_2"), ("B", "H", "dx")],
        ),
        (
            "return (torch.softmax(w, 0)[:, None, None] * x).sum(0)",
            {"x": ("L", "B", "H"), "w": ("L",)},
            [("", "L", "row_max", "denominator"), ("BH", "L", "y")],
            [("BH", "L", "dx", "dot", "dw")],
        ),
        (
            "return (torch.logsumexp(x, -1) * w).sum() / w.sum()",
            {"x": ("B", "T", "V"), "w": ("B", "T")},
            [("", "BT", "sum_w"), ("BT", "V", "row_shift", "denominator", "product"), ("", "", "y")],
            [("BT", "V", "dx", "dw")],
        ),
    ],
)
def test_launches(body, shapes, forward, backward):
    graph = op_graph(", ".join(f"{name}: torch.Tensor" for name in shapes), body, **shapes)
    assert scheduled_kernels(graph) == (forward, backward)


@pytest.mark.parametrize(
    "name, forward, backward",
    [
        (
            "alibi_softmax",
            [("BNT", "S", "y", "row_max", "denominator")],
            [("BNT", "S", "dx", "total"), ("N", "BT", "dslope")],
        ),
        (
            "biased_softmax",
            [("BNT", "S", "y", "row_max", "denominator")],
            [("BNT", "S", "dx", "dot"), ("NTS", "B", "dbias")],
        ),
        (
            "sink_softmax",
            [("BNT", "S", "y", "row_max", "highest", "denominator")],
            [("BNT", "S", "dx", "total"), ("N", "BT", "dsink")],
        ),
        (
            "attn_res",
            [("LBT", "H", "rstd", "scores"), ("BT", "L", "shares"), ("BTH", "L", "y")],
            [
                ("LBT", "H", "dshares", "product", "product_2"),
                ("BT", "L", "sum_product"),
                ("LBT", "H", "dvalues", "dquery", "dweight"),
            ],
        ),
        ("modulated_rms_norm", [("BT", "H", "y", "rstd")], [("BT", "H", "dx", "dweight", "dscale")]),
        ("gated_residual", [("BT", "H", "y")], [("BT", "H", "dresidual", "dx", "dgate")]),
        ("dice_loss", [("B", "YX", "overlap", "total", "difference")], [("B", "YX", "dlogits")]),
        # Sections, which are channels, then groups of these, then elements; a gradient that is a sum of rows of another.
        (
            "group_norm",
            [
                ("BC_0C_1", "T", "sum_x", "section_mean", "section_squares"),
                ("BC_0", "C_1", "mean", "rstd"),
                ("BC_0C_1", "T", "y"),
            ],
            [
                ("BC_0C_1", "T", "product", "product_2", "row_dweight", "row_dbias"),
                ("BC_0", "C_1", "mean_product", "mean_product_2"),
                ("BC_0C_1", "T", "dx"),
                ("C_0C_1", "B", "dweight", "dbias"),
            ],
        ),
        (
            "instance_norm",
            [("BC", "T", "y", "sum_x", "rstd")],
            [("BC", "T", "dx", "row_dweight", "row_dbias"), ("C", "B", "dweight", "dbias")],
        ),
        (
            "global_response_norm",
            [("BC", "T", "norm"), ("B", "C", "shifted", "response"), ("BT", "C", "y")],
            [("BC", "T", "dresponse", "product"), ("B", "C", "mean_product"), ("BT", "C", "dx", "dgamma", "dbeta")],
        ),
    ],
)
def test_launches_of_the_catalogue(name, forward, backward):
    assert scheduled_kernels(catalogue_graph(name)) == (forward, backward)


def test_a_maximum_of_everything_keeps_nan_in_both_steps():
    graph = op_graph(X, "return x / x.max()", x=("B", "H"))
    launches = forward_launches(graph, partition(graph), "op")
    largest = [value for launch in launches for s in specs_of(launch)[0].stores if (value := s.value).op == "max"]
    assert len(largest) == 2 and all(value.attr("nan") for value in largest)
