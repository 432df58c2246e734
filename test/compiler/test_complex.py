"""Complex numbers in a reference: pairs of real values, so that rotations come out as a person writes them."""

import pytest

from compiler_cases import op_graph

from liger_dev.errors import Unsupported

SIGNATURE = "x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor"
SHAPES = {"x": ("B", "T", "N", "D"), "cos": ("T", "D/2"), "sin": ("T", "D/2")}
PAIRS = "z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))\n"


@pytest.mark.parametrize(
    "turn", ["torch.complex(cos.float(), sin.float())", "torch.polar(torch.ones_like(cos.float()), cos.float() + sin.float())"]
)  # fmt: skip
def test_rotation(turn):
    """The graph agrees with autograd in float64, or it would be refused."""
    body = f"turn = {turn}[:, None, :]\n{PAIRS}return torch.view_as_real(z * turn).flatten(3).type_as(x)"
    graph = op_graph(SIGNATURE, body, **SHAPES)
    assert graph.outputs and not any("complex" in value.op for value in graph.walk(o.value for o in graph.outputs))


def test_conjugate():
    body = f"{PAIRS}y = z * torch.complex(cos.float(), sin.float())[:, None, :].conj()\nreturn torch.view_as_real(y).flatten(3)"
    assert op_graph(SIGNATURE, body, **SHAPES).outputs


def test_length_that_varies():
    body = f"{PAIRS}return torch.view_as_real(z * torch.polar(cos.float(), sin.float())[:, None, :]).flatten(3)"
    with pytest.raises(Unsupported, match="a length that is no number"):
        op_graph(SIGNATURE, body, **SHAPES)


def test_what_has_no_row():
    body = f"{PAIRS}y = torch.exp(z) * torch.complex(cos.float(), sin.float())[:, None, :]\nreturn torch.view_as_real(y).flatten(3)"
    with pytest.raises(Unsupported, match="complex numbers have no row"):
        op_graph(SIGNATURE, body, **SHAPES)
