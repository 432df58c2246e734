"""From a reference's source to the forward graph: names, scalars, roundings, dtypes, and one clear refusal each."""

import pytest
import torch

from compiler_cases import CASES
from compiler_cases import ROWS
from compiler_cases import catalogue
from compiler_cases import catalogue_graph
from compiler_cases import gradient
from compiler_cases import op_graph
from compiler_cases import written

from liger_dev.compiler import compile_op
from liger_dev.compiler.formulas import formula
from liger_dev.compiler.formulas import formulas
from liger_dev.compiler.reserved import refuse_taken
from liger_dev.errors import BadInput
from liger_dev.errors import Unsupported
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor

X = "x: torch.Tensor"
XW = f"{X}, w: torch.Tensor"


def forward(graph):
    return [formula(graph, output.name, output.value) for output in graph.outputs]


# Names


@pytest.mark.parametrize(
    "body, wanted",
    [
        ("a = torch.tanh(x)\ny = a + x\nreturn y", "y = a + x, where a = tanh(x)"),
        ("a: torch.Tensor = torch.tanh(x)\ny = a + x\nreturn y", "y = a + x, where a = tanh(x)"),
        # The last value that a name stands for keeps it.
        ("a = torch.tanh(x)\na = a * x\ny = a + 1\nreturn y", "y = a + 1, where a = tanh(x) * x"),
        # A statement over several lines, and one without a name.
        ("y = (torch.tanh(x)\n     * torch.exp(x)\n     + 1)\nreturn y", "y = tanh(x) * exp(x) + 1"),
        ("return torch.tanh(x) * x", "y = tanh(x) * x"),
        # An input's name stays the input's.
        ("x = torch.tanh(x)\nreturn x * 2", "y = tanh(x) * 2"),
    ],
)
def test_names_are_the_references_own(body, wanted):
    assert forward(op_graph(X, body, x=ROWS)) == [wanted]


def test_names_inside_a_helper():
    helper = "def half(a):\n    halved = a / 2\n    return halved\n\n\n"
    graph = op_graph(X, "y = half(x) + 1\nreturn y", helper, name="helped", x=ROWS)
    assert forward(graph) == ["y = halved + 1, where halved = x / 2"]


def test_two_values_never_share_a_name():
    graph = op_graph(X, "dx = torch.tanh(x)\nrstd = dx * x\ndy = rstd + dx\nreturn dy", x=ROWS)
    graph.check()
    assert graph.names[gradient(graph, "x")] == "dx"


@pytest.mark.parametrize("name", CASES)
def test_every_catalogue_graph_keeps_its_invariants(name):
    graph = catalogue_graph(name)
    graph.check()
    assert len(graph.text().splitlines()) == len(set(graph.text().splitlines()))
    assert {key for key, _ in graph.gradients} == {t.name for t in catalogue(name).tensors if t.dtype == "float"}
    assert formulas(graph)[0].startswith(f"{graph.outputs[0].name} = ")


# Scalars


@pytest.mark.parametrize(
    "text",
    [
        "p",
        "-p",
        "(1 - p)",
        "(1 + p)",
        "(p - 1)",
        "1 / p",
        "2 * p",
        "0.5 * p",
        "p * p",
        "1 / (2 * p)",
        "(p - 2.5)",
        "3 * p**2",
    ],
)
def test_numbers_made_of_a_scalar_argument_are_recognised(text):
    graph = op_graph(f"{X}, p: float = 0.3", f"y = torch.tanh(x) + x * ({text})\nreturn y", x=ROWS)
    spelled = forward(graph)[0]
    at = {"p": 0.7, "x": torch.tensor(1.7), "tanh": torch.tanh}
    assert eval(spelled.removeprefix("y = "), at).item() == pytest.approx(
        (torch.tanh(at["x"]) + at["x"] * eval(text, {"p": 0.7})).item()
    )
    assert "0.3" not in spelled


@pytest.mark.parametrize("text", ["(p * q)", "(p / q)", "(p + q)", "(p - q)"])
def test_numbers_made_of_two_scalar_arguments_are_recognised(text):
    graph = op_graph(f"{X}, p: float = 0.3, q: float = 2.0", f"return torch.tanh(x) * {text}", x=ROWS)
    at = {"p": 0.7, "q": 0.9, "x": torch.tensor(1.7), "tanh": torch.tanh}
    wanted = torch.tanh(at["x"]) * eval(text, {"p": 0.7, "q": 0.9})
    assert eval(forward(graph)[0].removeprefix("y = "), at).item() == pytest.approx(wanted.item())


def test_two_scalars_with_one_default_are_told_apart():
    graph = op_graph(f"{X}, p: float = 0.3, q: float = 0.3", "y = x * p + q\nreturn y", x=ROWS)
    assert forward(graph) == ["y = x * p + q"]


def test_a_constant_that_equals_a_default_stays_a_constant():
    graph = op_graph(f"{X}, p: float = 0.5", "y = x * 0.5 + p\nreturn y", x=ROWS)
    assert forward(graph) == ["y = x * 0.5 + p"]


# Roundings and dtypes


@pytest.mark.parametrize(
    "body, wanted, dtype_of",
    [
        # A cast to a tensor's dtype rounds; what eager rounds on its way through low precision does not.
        ("y = (x.float() * 2).to(x.dtype) * w\nreturn y", "y = round(x * 2) * w", ("x", "w")),
        ("dtype = x.dtype\ny = (x.float() * 2).to(dtype) * w.float()\nreturn y", "y = round(x * 2) * w", ()),
        ("y = (x.float() * 2).type_as(w) * w\nreturn y", "y = round(x * 2) * w", ("w",)),
        ("y = torch.exp(x * 2) * w\nreturn y", "y = exp(x * 2) * w", ("x", "w")),
        # The store rounds an output.
        ("y = x.float() * 2 * w\nreturn y.to(w.dtype)", "y = x * 2 * w", ("w",)),
        ("y = x.float() * 2 * w\nreturn y", "y = x * 2 * w", ()),
    ],
)
def test_explicit_roundings_and_output_dtypes(body, wanted, dtype_of):
    graph = op_graph(XW, body, x=ROWS, w=("H",))
    assert forward(graph) == [wanted]
    assert graph.outputs[0].dtype_of == dtype_of


@pytest.mark.parametrize("shape, dtype_of", [((), ("x",)), ((1,), ("x", "w")), (("H",), ("x", "w"))])
def test_a_tensor_without_dimensions_promotes_nothing(shape, dtype_of):
    graph = op_graph(XW, "y = torch.exp(x) * w\nreturn y", x=ROWS, w=shape)
    assert graph.outputs[0].dtype_of == dtype_of


def test_an_output_that_is_used_further_is_used_as_it_is_stored():
    graph = op_graph(f"{X}, z: torch.Tensor", "s = x + z\ny = torch.exp(s) * 2\nreturn y, s", x=ROWS, z=ROWS)
    assert forward(graph) == ["y = exp(s) * 2, where s = round(x + z)", "s = round(x + z)"]


def test_dimensions_become_axes():
    graph = op_graph(XW, "m = x.mean(-1)\nreturn m * w", x=ROWS, w=("T",))
    (output,) = graph.outputs
    assert output.dims == (("B",), ("T",)) and output.value.axes == {"B", "T"}
    graph = op_graph(X, "m = x.mean(-1, keepdim=True)\nreturn m * 2", x=ROWS)
    assert graph.outputs[0].dims == (("B",), ("T",), ())


# Refusals


@pytest.mark.parametrize(
    "line, operation, shapes",
    [
        ("y = x.logcumsumexp(-1) * w", "logcumsumexp", (ROWS, ("H",))),
        ("y = x @ w", "matmul", (ROWS, ("H", "K"))),
        ("y = F.conv1d(x, w)", "conv1d", (("B", "C", "L"), ("O", "C", 1))),
        ("y = x.cummax(-1)[0] * w", "cummax", (ROWS, ("H",))),
    ],
)
def test_an_operation_without_a_row_is_named_with_its_line(line, operation, shapes):
    with pytest.raises(Unsupported) as caught:
        op_graph(XW, f"shifted = x + w.sum()\n{line}\nreturn y * shifted.sum()", x=shapes[0], w=shapes[1])
    assert caught.value.what == f"aten.{operation}.default is not supported: the compiler has no row for it"
    assert caught.value.where == f"node {operation}, line 9: {line}"


@pytest.mark.parametrize(
    "body, where",
    [
        ("if x.sum() > 0:\n    return x * 2\nreturn x * 3", "(bool)"),
        ("return x * x.sum().item()", "(item)"),
    ],
)
def test_data_dependent_control_flow_is_refused(body, where):
    with pytest.raises(BadInput) as caught:
        op_graph(X, body, x=ROWS)
    assert caught.value.what == f"the operation reads a tensor's value {where}, so what it does depends on data"
    assert caught.value.where == "op.py:8"


@pytest.mark.parametrize(
    "body, dims, sizes",
    [
        (
            "y = x.reshape(x.shape[0], x.shape[1], 2, -1).sum(-1)\nreturn y",
            (("B",), ("T",), ("H_0",)),
            {"H_0": "2", "H_1": "x.shape[-1] // 2"},
        ),
        ("y = x.view(x.shape[0], -1) * 2\nreturn y", (("B",), ("T", "H")), {}),
    ],
)
def test_views_split_and_merge_axes(body, dims, sizes):
    graph = op_graph(X, body, x=ROWS)
    assert graph.outputs[0].dims == dims
    assert {axis: graph.sizes[axis] for axis in sizes} == sizes


@pytest.mark.parametrize("line", ["y = x.transpose(1, 2).reshape(x.shape) * 2", "y = x.reshape(x.shape[0], -1, 4) * 2"])
def test_views_across_the_borders_of_axes_are_refused(line):
    with pytest.raises(Unsupported) as caught:
        op_graph(X, f"{line}\nreturn y", x=ROWS)
    assert f"line 8: {line}" in caught.value.where and "axes" in caught.value.what


def test_axes_that_meet_are_refused():
    with pytest.raises(BadInput) as caught:
        op_graph(f"{X}, z: torch.Tensor", "y = x + z\nreturn y", x=ROWS, z=("B", "T", "K"))
    assert "must match" in caught.value.what


def test_in_place_writes_are_refused():
    with pytest.raises(BadInput, match="writes to its input 'x' in place"):
        op_graph(X, "x.mul_(2)\nreturn x * x", x=ROWS)
    with pytest.raises(BadInput, match="its gradient fails"):
        op_graph(X, "t = x.tanh()\nt *= 3\nreturn t", x=ROWS)


def test_an_output_that_is_an_input_is_refused():
    with pytest.raises(Unsupported, match="x is returned unchanged"):
        op_graph(X, "return x, x * 2", x=ROWS)


def test_a_piece_of_an_axis_is_not_split():
    with pytest.raises(Unsupported, match="it splits x_2_of_64, which is no axis of an input"):
        op_graph(
            f"{X}, w: torch.Tensor",
            "y = x[..., 32:].unflatten(-1, (2, 32)).sum(-2)\nreturn y",
            x=(*ROWS[:2], 96),
            w=(64,),
        )


@pytest.mark.parametrize(
    "name, reason", [("n_cols", "kernels and their wrappers use it"), ("dx", "it is that of the gradient of x")]
)
def test_an_argument_does_not_take_a_name_that_kernels_need(name, reason):
    tensors = (Tensor("x", ROWS), Tensor(name, ROWS))
    with pytest.raises(Unsupported, match=f"an argument can't have the name {name}: {reason}"):
        refuse_taken(Reference("op", "", tensors, (), "op.py"))


@pytest.mark.parametrize("name", ["start", "mask", "rows"])
def test_a_number_does_not_take_a_name_that_kernels_count_with(name):
    with pytest.raises(Unsupported, match=f"an argument can't have the name {name}"):
        refuse_taken(Reference("op", "", (Tensor("x", ROWS),), (Scalar(name, "float", 2.0),), "op.py"))
    refuse_taken(Reference("op", "", (Tensor("x", ROWS), Tensor(name, ROWS)), (), "op.py"))


def test_a_binary_cross_entropy_has_the_dtype_of_its_target_whatever_weighs_it():
    """torch computes it in place of 1 - target; eager's own result says so."""
    x, target, weight = torch.randn(3, 5).bfloat16(), torch.rand(3, 5).bfloat16(), torch.rand(5)
    call = torch.nn.functional.binary_cross_entropy_with_logits
    assert call(x, target, weight=weight, pos_weight=weight).dtype == torch.bfloat16
    body = "return torch.nn.functional.binary_cross_entropy_with_logits(x, target, weight, pos_weight=positive)"
    reference = written(
        "x, target, weight, positive", body, x=("B", "K"), target=("B", "K"), weight=("K",), positive=("K",)
    )
    (output,) = compile_op(reference, {}).profile["forward_outputs"]
    assert output["dtype"] == "same as target"
