"""Simplified gradients: the form that a person would write, and the same numbers as before."""

import random

import pytest
import torch

from compiler_cases import ROWS
from compiler_cases import add_output
from compiler_cases import by_hand
from compiler_cases import catalogue_graph
from compiler_cases import gradient
from compiler_cases import gradients_at
from compiler_cases import op_graph

from liger_dev.compiler.autodiff import differentiate
from liger_dev.compiler.formulas import formula
from liger_dev.compiler.ir import is_const
from liger_dev.compiler.simplify import simplify

SIZES = {"R": 5, "C": 7}


def first_line(graph, name):
    """A gradient's formula without the definitions behind `where`."""
    return formula(graph, f"d{name}", gradient(graph, name)).partition(", where ")[0]


@pytest.mark.parametrize(
    "name, wanted",
    [
        (
            "layer_norm",
            {
                "x": "dx = (dx_hat - x_hat * (sum[H](dx_hat * x_hat) / H) - sum[H](dx_hat) / H) * rstd",
                "weight": "dweight = sum[B, T](dy * x_hat)",
                "bias": "dbias = sum[B, T](dy)",
            },
        ),
        ("gemma_rms_norm", {"x": "dx = (dx_hat - x_hat * (sum[H](dx_hat * x_hat) / H)) * rstd"}),
        ("l2_norm", {"x": "dx = (dy - y * sum[H](dy * y)) * inverse_norm"}),
        ("softmax", {"x": "dx = y * (dy - sum[V](dy * y))"}),
        ("log_softmax", {"x": "dx = dy - exp(y) * sum[V](dy)"}),
        (
            "swiglu",
            {
                "gate": "dgate = dactivated * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))",
                "up": "dup = dy * activated",
            },
        ),
        ("relu_squared", {"x": "dx = 2 * dy * positive"}),
        ("dyt", {"x": "dx = dsquashed * (1 - squashed * squashed) * alpha"}),
    ],
)
def test_gradients_of_the_catalogue(name, wanted):
    graph = catalogue_graph(name)
    assert {key: first_line(graph, key) for key in wanted} == wanted


def test_rms_norm_computes_x_hat_once():
    """Forward rounds x_hat, so backward's is the product before the rounding: one value, used by the row's sum too."""
    graph = catalogue_graph("rms_norm")
    x, rstd = (next(v for v, n in graph.names.items() if n == name) for name in ("x", "rstd"))
    products = [v for v in graph.walk([gradient(graph, "x")], [rstd]) if v.op == "mul" and set(v.args) >= {x, rstd}]
    assert len(products) == 1
    sums = [v for v in graph.walk([gradient(graph, "x")], [rstd]) if v.op == "sum"]
    assert [products[0] in total.args[0].args for total in sums] == [True]


def test_one_more_input_of_a_sum_adds_its_gradient():
    graph = catalogue_graph("fused_add_rms_norm")
    assert gradient(graph, "x") is gradient(graph, "residual")
    assert first_line(graph, "x").startswith("dx = dsummed + (dsummed_hat - ")


@pytest.mark.parametrize(
    "body, wanted",
    [
        ("centered = x - x.mean(-1, keepdim=True)\ny = centered.sum(-1, keepdim=True) + x\nreturn y", "dx = dy"),
        ("y = x + x\nreturn y", "dx = 2 * dy"),
        ("y = 3 * x - x\nreturn y", "dx = 2 * dy"),
        ("y = x * 4 / 2\nreturn y", "dx = 2 * dy"),
        ("y = -(-x)\nreturn y", "dx = dy"),
        ("y = x.sum(-1, keepdim=True) + x\nreturn y", "dx = dy + sum[H](dy)"),
        ("y = x / x.shape[-1]\nreturn y", "dx = dy / H"),
    ],
)
def test_small_forms(body, wanted):
    graph = op_graph("x: torch.Tensor", body, x=ROWS)
    assert first_line(graph, "x") == wanted


def test_a_sum_that_cancels_is_a_constant_zero():
    graph, (x,) = by_hand({"x": ("R", "C")})
    mean = graph.div(graph.sum(x, {"C"}), graph.size({"C"}))
    graph.names[mean] = "mean"
    centered = graph.sub(x, mean)
    graph.names[centered] = "centered"
    add_output(graph, "y", centered)
    graph.gradients["x", ()] = graph.make("sum", centered, over=("C",))
    simplify(graph)
    assert is_const(gradient(graph, "x"), 0)


def test_relu_masks_its_own_product_once():
    """where(x <= 0, 0, y) is y only if relu(x) is a factor of y."""
    same = op_graph("x: torch.Tensor", "p = F.relu(x)\ny = p * p\nreturn y", x=ROWS)
    assert not [v for v in same.walk([gradient(same, "x")]) if v.op == "where"]
    other = op_graph("x: torch.Tensor", "p = F.relu(x)\ny = p * torch.exp(x)\nreturn y", x=ROWS)
    assert [v for v in other.walk([gradient(other, "x")]) if v.op == "where"]


def test_forward_stays_as_the_reference_wrote_it():
    text = "a = x * 2\nb = a / 2\ny = b + x - x\nreturn y"
    graph = op_graph("x: torch.Tensor", text, x=ROWS)
    assert formula(graph, "y", graph.outputs[0].value) == "y = b + x - x, where b = a / 2, a = x * 2"


def unary(g, rng, a):
    return rng.choice(
        [
            lambda: g.make("tanh", a),
            lambda: g.make("sigmoid", a),
            lambda: g.mul(a, g.make("sigmoid", a)),
            lambda: g.make("relu", a),
            lambda: g.mul(g.make("relu", a), g.make("relu", a)),
            lambda: g.make("exp", g.make("tanh", a)),
            lambda: g.neg(a),
            lambda: g.make("abs", a),
            lambda: g.make("rsqrt", g.add(g.mul(a, a), g.const(0.7))),
            lambda: g.mul(g.const(rng.choice([0.5, -3.0, 2.0])), a),
            lambda: g.sub(g.const(1.0), a),
        ]
    )()


def binary(g, rng, a, b):
    return rng.choice(
        [
            lambda: g.add(a, b),
            lambda: g.sub(a, b),
            lambda: g.mul(a, b),
            lambda: g.div(a, g.add(g.mul(b, b), g.const(1.5))),
            lambda: g.make("maximum", a, b),
            lambda: g.where(g.make("gt", a, b), b, a),
        ]
    )()


def reduction(g, rng, a):
    over = sorted(a.axes & {"C"})
    if not over:
        return a
    size = g.size(over)
    mean = g.div(g.sum(a, over), size)
    centered = g.sub(a, mean)
    return rng.choice(
        [
            lambda: g.sum(a, over),
            lambda: mean,
            lambda: centered,
            lambda: g.mul(centered, g.make("rsqrt", g.add(g.div(g.sum(g.mul(centered, centered), over), size),
                                                          g.const(0.1)))),
            lambda: g.mul(a, g.make("rsqrt", g.add(g.div(g.sum(g.mul(a, a), over), size), g.const(0.1)))),
            lambda: g.make("softmax", a, axes=a.axes, over=tuple(over)) if over == ["C"] else a,
        ]
    )()  # fmt: skip


def random_graph(seed):
    """A graph of ten to twenty random steps over tiles, rows and columns, some values named; its gradients unsimplified."""
    rng = random.Random(seed)
    g, values = by_hand({"x": ("R", "C"), "z": ("R", "C"), "w": ("C",), "r": ("R",)})
    for step in range(rng.randint(5, 14)):
        a, b = rng.choice(values[-5:]), rng.choice(values)
        make = rng.choice([unary, binary, binary, reduction])
        value = binary(g, rng, a, b) if make is binary else make(g, rng, a)
        if rng.random() < 0.5 and value.args and value not in g.names and value.op != "const":
            g.names[value] = f"v{step}"
        values.append(value)
    total = values[-1]
    for value in values[4:-1]:
        total = g.add(total, g.make("tanh", value))
    for name, value in {"x": values[0], "w": values[2]}.items():
        total = g.add(total, value)
    add_output(g, "y", total)
    differentiate(g, ["x", "z", "w", "r"])
    return g


# The last two once moved a factor into a sum and out again without end.
@pytest.mark.parametrize("seed", [*range(100), 111, 793])
def test_random_graphs_keep_their_gradients(seed):
    graph = random_graph(seed)
    before = dict(graph.gradients)
    simplify(graph)
    graph.check()
    old, new = gradients_at(graph, before, SIZES, seed), gradients_at(graph, graph.gradients, SIZES, seed)
    for name in before:
        scale = max(1.0, float(old[name].abs().max()))
        error = float((old[name] - new[name]).abs().max())
        assert error <= 1e-9 * scale, f"{name} differs by {error:.3g} of {scale:.3g}"


def test_simplifying_makes_gradients_smaller():
    """Fewer operations than reverse mode leaves, in total, or the pass is not worth having."""
    counts = torch.zeros(2)
    for seed in range(100):
        graph = random_graph(seed)
        counts[0] += len(graph.walk(graph.gradients.values()))
        simplify(graph)
        counts[1] += len(graph.walk(graph.gradients.values()))
    assert counts[1] <= counts[0]


def test_simplifying_twice_changes_nothing():
    for name in ("layer_norm", "rms_norm", "softmax", "swiglu", "geglu", "dyt", "fused_add_rms_norm"):
        graph = catalogue_graph(name)
        before = dict(graph.gradients)
        simplify(graph)
        assert graph.gradients == before, name


def test_a_quotient_of_scalars_is_taken_once():
    graph = op_graph("x: torch.Tensor", "y = (x.square() * 3.0).sum(-1).mean()\nreturn y", x=ROWS)
    assert first_line(graph, "x") == "dx = x * (6 * dy / (B * T))"


def test_a_sum_that_forward_has_is_used_with_the_other_sign_too():
    """In JSD's gradient (-p - q) / (p + q) is -1, which cancels: what is left is forward's own term."""
    graph = catalogue_graph("jsd")
    text = formula(graph, "dlog_q", gradient(graph, "log_q"))
    assert "dlog_q_bounded = student_term * " in text and "1 +" not in text


SINK = """
combined = torch.cat([x, sink.unsqueeze(-1).expand(x.shape[0], 1)], dim=-1)
combined = combined - combined.max(dim=-1, keepdim=True).values
return F.softmax(combined, dim=-1)[..., :-1]
"""


def test_a_softmax_beside_a_number_is_that_of_the_row_and_counts_from_its_maximum():
    """The reference takes the maximum off before, which changes nothing; nothing is the exponential of a difference of
    logarithms, which loses digits far from zero."""
    graph = op_graph("x: torch.Tensor, sink: torch.Tensor", SINK, x=("B", "S"), sink=("B",))
    y = formula(graph, "y", graph.outputs[0].value)
    assert y.startswith("y = exp(x - highest) / (denominator * exp(row_max - highest) + exp(sink - highest)), where")
    assert first_line(graph, "x") == "dx = y * (dy - sum[S](dy * y))"
    assert "log" not in first_line(graph, "sink")


def test_what_smoothed_labels_add_up_to_is_known():
    body = """
y = F.one_hot(target, x.shape[-1]).to(x.dtype) * (1 - smoothing) + smoothing / x.shape[-1]
return -(y * x.log_softmax(-1)).sum(-1)
"""
    signature = "x: torch.Tensor, target: torch.LongTensor, smoothing: float = 0.1"
    graph = op_graph(signature, body, x=("N", "C"), target=("N",))
    assert "sum" not in first_line(graph, "x")
    counted = op_graph(signature, body.replace("F.one_hot(target, x.shape[-1])", "(torch.arange(x.shape[-1]) == target[:, None])"),
                       x=("N", "C"), target=("N",))  # fmt: skip
    assert "sum" in first_line(counted, "x"), "a target that nothing checks may be none of the columns"
