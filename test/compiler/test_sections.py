"""Rows of sections: which there are, and what is reduced section by section."""

import pytest
import torch

from compiler_cases import gradients_at
from compiler_cases import op_graph

from liger_dev.compiler.sections import reduce_by_sections
from liger_dev.compiler.sections import section_axes

X, W = "x: torch.Tensor", "w: torch.Tensor"
NORM = "c = x - x.mean((1, 2), keepdim=True)\ns = torch.rsqrt(c.square().mean((1, 2), keepdim=True) + 1e-6)\n"


@pytest.mark.parametrize(
    "body, w, section",
    [
        (NORM + "return c * s * w[:, None]", ("C",), {"T"}),
        # Contiguous, and several axes together.
        (NORM + "return c * s * w", ("T",), set()),
        (NORM + "return c * s * w", ("C", "T"), set()),
        # A maximum would take a look at memory of its own, and a loss has its gradient made at once.
        ("p = x - x.amax((1, 2), keepdim=True)\nreturn p / p.sum((1, 2), keepdim=True) * w[:, None]", ("C",), set()),
        ("return (x.square() * w[:, None]).sum((1, 2)).mean()", ("C",), set()),
    ],
)
def test_which_rows_have_sections(body, w, section):
    graph = op_graph(f"{X}, {W}", body, x=("B", "C", "T"), w=w)
    assert section_axes(graph, frozenset({"C", "T"})) == section


def test_sums_over_a_row_become_sums_of_its_sections():
    """No sum over more than a section is left, nor one of differences that the whole row's mean is needed for."""
    graph = op_graph(f"{X}, {W}", NORM + "return c * s * w[:, None]", x=("B", "C", "T"), w=("C",))
    sizes = {"B": 2, "C": 3, "T": 5}

    def results():
        return gradients_at(graph, {"y": graph.outputs[0].value, **graph.gradients}, sizes)

    before = results()
    reduce_by_sections(graph, frozenset({"T"}))
    after = results()
    assert before.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=1e-9, atol=1e-9)
    sums = [v for v in graph.walk([graph.outputs[0].value, *graph.gradients.values()]) if v.op == "sum"]
    assert all(v.attr("over") == ("T",) for v in sums if "T" in v.args[0].axes)
    spread = [v for v in graph.walk([graph.outputs[0].value]) if v.op == "sum" and v.attr("over") == ("T",)]
    assert [len([s for s in spread if s in graph.walk(v.args)]) for v in spread] == [0, 1]
