"""The float64 oracle: a wrong adjoint, and a reference that its scalars steer, are caught before anything is emitted."""

from dataclasses import replace

import pytest

from compiler_cases import CASES
from compiler_cases import ROWS
from compiler_cases import catalogue
from compiler_cases import catalogue_graph
from compiler_cases import graph_of
from compiler_cases import op_graph
from compiler_cases import written

from liger_dev.compiler import scheduled
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.options import Options
from liger_dev.compiler.wrappers import backward_lines
from liger_dev.errors import Unsupported

X = "x: torch.Tensor"
DIFFERS = "the traced graph does not compute what the reference does"


@pytest.mark.parametrize(
    "name, op",
    [
        ("rms_norm", "rsqrt"),
        ("layer_norm", "sub"),
        ("softmax", "softmax"),
        ("log_softmax", "log_softmax"),
        ("swiglu", "sigmoid"),
        ("geglu", "tanh"),
        ("geglu_erf", "erf"),
        ("relu_squared", "relu"),
        ("dyt", "mul"),
    ],
)
def test_a_wrong_adjoint_is_caught(name, op, monkeypatch):
    right = OPS[op].adjoint

    def wrong(graph, value, gradient):
        return [None if part is None else graph.mul(part, graph.const(1.001)) for part in right(graph, value, gradient)]

    monkeypatch.setitem(OPS, op, replace(OPS[op], adjoint=wrong))
    with pytest.raises(Unsupported, match=f"{DIFFERS}: d"):
        graph_of(catalogue(name))


def test_a_wrong_evaluation_is_caught(monkeypatch):
    monkeypatch.setitem(OPS, "sigmoid", replace(OPS["sigmoid"], evaluate=lambda x: x.sigmoid() + 1e-7))
    with pytest.raises(Unsupported, match=f"{DIFFERS}: y"):
        graph_of(catalogue("swiglu"))


def test_a_wrong_simplification_is_caught(monkeypatch):
    monkeypatch.setattr(Graph, "neg", lambda self, a: a)
    with pytest.raises(Unsupported, match=DIFFERS):
        graph_of(catalogue("layer_norm"))


@pytest.mark.parametrize(
    "signature, body, setting",
    [
        ("p: float = 0.3", "y = x * 2 if p > 0 else x * 3\nreturn y", " at p=0.0"),
        ("p: float = 0.0", "y = x * 2 if p == 0 else x * (p + 3)\nreturn y", ""),
        ("p: float = 0.3", "y = x * p**3\nreturn y", ""),
    ],
)
def test_a_reference_that_a_scalar_steers_is_refused(signature, body, setting):
    with pytest.raises(Unsupported) as caught:
        op_graph(f"{X}, {signature}", body, x=ROWS)
    assert caught.value.what.startswith(f"{DIFFERS}: y{setting} differs by ")
    assert "control flow" in caught.value.todo


def test_a_value_that_the_reference_itself_refuses_is_no_objection():
    body = "if p < 0:\n    raise ValueError('p must be positive')\nreturn x * p"
    assert op_graph(f"{X}, p: float = 0.3", body, x=ROWS).outputs


def test_a_nan_of_the_reference_is_no_objection():
    assert op_graph(f"{X}, p: float = 0.3", "return torch.log(p + x.abs() * 1e-3)", x=ROWS).outputs


def test_gradients_that_are_zero_throughout_are_refused():
    softmax = catalogue("softmax")
    summed = replace(softmax, text=softmax.text.replace("return y", "return y.sum(-1)"))
    with pytest.raises(Unsupported, match="every gradient of the reference is zero"):
        graph_of(summed)


@pytest.mark.parametrize("name", CASES)
def test_the_catalogue_passes(name):
    assert catalogue_graph(name).gradients


def test_inputs_that_autograd_reaches_without_a_gradient_get_zeros():
    body = "return torch.sign(x) * w + torch.where(z > 0, w, v.detach())"
    signature = ", ".join(f"{name}: torch.Tensor" for name in "xwzv")
    graph = op_graph(signature, body, **dict.fromkeys("xwzv", ("B", "H")))
    assert graph.zero_gradients == ["x"]
    host = scheduled(written(signature, body, **dict.fromkeys("xwzv", ("B", "H"))), graph, Options())
    lines = backward_lines(host, ["dx", "dw"])
    assert "dx = torch.zeros_like(x) if needs_dx else None" in lines and lines[-1] == "return dx, dw"


def test_a_size_that_became_a_number_is_named():
    with pytest.raises(Unsupported) as caught:
        op_graph(X, "import math\ny = x / math.log(x.shape[-1])\nreturn y", x=ROWS)
    assert caught.value.what.endswith("; in it the size of H is a number")
    assert "math.log(x.shape[-1])" in caught.value.todo
