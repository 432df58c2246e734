"""Each kind of source becomes a standalone reference that computes the same, or one clear error."""

import importlib.util

import pytest
import torch
import torch.nn.functional as F

from liger_dev.errors import BadInput
from liger_dev.errors import Unsupported
from liger_dev.loading import load
from liger_dev.records import Scalar
from liger_dev.records import Source
from liger_dev.records import Tensor
from liger_dev.sources import catalog_names
from liger_dev.sources import catalog_source
from liger_dev.sources import resolve

ROWS = ("B", "T", "H")
HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"


@pytest.fixture
def reading(tmp_path):
    def read(source, name="op", shapes={}, init=()):
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        return load(name, resolve(name, source, shapes=shapes, init=list(init), cwd=tmp_path), work)

    return read


@pytest.fixture
def file(tmp_path, reading):
    def read(body, entry="", **options):
        (tmp_path / "user.py").write_text(HEAD + body)
        return reading(f"user.py:{entry}" if entry else "user.py", **options)

    return read


def function(reference, tmp_path):
    """The reference's function, from its text alone."""
    path = tmp_path / f"check_{reference.name}.py"
    path.write_text(reference.text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, reference.name)


@pytest.mark.parametrize("name", [name for name, _ in catalog_names()])
def test_catalogue_references_are_kept_verbatim_and_need_no_assumption(name, tmp_path):
    source = catalog_source(name)
    reference = load(name, source, tmp_path)
    assert reference.text == source.text
    assert reference.assumptions == ()
    assert reference.summary == dict(catalog_names())[name]


def test_catalogue_layer_norm_has_optional_parameters(tmp_path):
    reference = load("layer_norm", catalog_source("layer_norm"), tmp_path)
    assert reference.tensors == (
        Tensor("x", ROWS),
        Tensor("weight", ("H",), optional=True, init="ones"),
        Tensor("bias", ("H",), optional=True, init="zeros"),
    )
    assert reference.scalars == (Scalar("eps", "float", 1e-5),)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5)),
        ("rms_norm", lambda x, w, b: F.rms_norm(x, x.shape[-1:], w, 1e-6)),
        ("gemma_rms_norm", lambda x, w, b: F.rms_norm(x, x.shape[-1:], 1 + w, 1e-6)),
        ("l2_norm", lambda x, w, b: F.normalize(x, dim=-1)),
        ("relu_squared", lambda x, w, b: F.relu(x) ** 2),
        ("geglu_erf", lambda x, w, b: F.gelu(x) * x.flip(0)),
        ("swiglu", lambda x, w, b: F.silu(x) * x.flip(0)),
    ],
)
def test_catalogue_references_compute_what_torch_computes(name, expected, tmp_path):
    reference = load(name, catalog_source(name), tmp_path)
    x, weight, bias = torch.randn(3, 5, 64), torch.rand(64), torch.randn(64)
    given = {"x": x, "gate": x, "up": x.flip(0), "weight": weight, "bias": bias}
    y = function(reference, tmp_path)(**{tensor.name: given[tensor.name] for tensor in reference.tensors})
    torch.testing.assert_close(y, expected(x, weight, bias), rtol=1e-5, atol=1e-6)


def test_function_file_is_kept_but_for_name_order_and_constants(file):
    reference = file(
        "# a helper\ndef inner(x):\n    return op_inner(x)  # not renamed\n\n\ndef op_inner(x):\n    return x * 2\n\n\n"
        "def mine(eps, x, weight=None, beta: float = 1.0):\n    y = inner(x) * beta + eps\n"
        "    return y if weight is None else y * weight\n",
        entry="mine",
        init=["eps=0.1"],
    )
    assert "def op(x, weight=None, eps=0.1, beta: float = 1.0):" in reference.text
    assert "# a helper" in reference.text and "return op_inner(x)  # not renamed" in reference.text
    assert 'SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}\nPARAMETERS = {"weight": "ones"}\n' in reference.text
    assert reference.tensors == (Tensor("x", ROWS), Tensor("weight", ("H",), optional=True, init="ones"))
    assert reference.scalars == (Scalar("eps", "float", 0.1), Scalar("beta", "float", 1.0))


def test_docstring_stays_first_in_a_file_without_imports(tmp_path):
    body = '"""A square."""\n\n\ndef square(x):\n    return x * x\n'
    for text in (body, body.partition("\n\n\n")[2]):
        reference = load("square", Source("function", text, "square", "user.py"), tmp_path)
        assert reference.summary == ("A square." if text is body else "")
        assert reference.text.count('SHAPES = {"x": ("B", "T", "H")}\n\n\ndef square') == 1


def test_reference_that_is_read_again_stays_as_it_is(file, tmp_path):
    reference = file("def f(x, weight, eps: float = 1e-6):\n    return x * weight + eps\n")
    again = load("op", Source("function", reference.text, "op", "kernels/reference/op.py"), tmp_path)
    assert (again.text, again.tensors, again.scalars) == (reference.text, reference.tensors, reference.scalars)
    assert again.assumptions == ()


def test_recursion_is_renamed_with_the_function(file):
    reference = file("def twice(x, n: int = 1):\n    return x * x if n == 0 else twice(x, n - 1)\n")
    assert "def op(x, n: int = 1):" in reference.text and "else op(x, n - 1)" in reference.text
    assert "twice" not in reference.text


def test_keyword_only_arguments_become_positional(file):
    assert "def op(x, w, eps: float = 0.5):" in file("def f(x, *, eps: float = 0.5, w):\n    return x * w + eps\n").text


def test_inferred_shapes_are_an_assumption(file):
    reference = file("def f(x, gamma):\n    return x * gamma\n")
    assert reference.assumptions[0] == ("shapes were not given: assumed x (B, T, H), gamma (H); pass --shape to change")
    assert "gamma is taken for a parameter that starts as ones" in reference.assumptions


def test_multiples_of_axes_in_a_files_shapes(file):
    body = (
        'SHAPES = {"x": ("B", "H"), "packed": ("B", "2*H"), "target": ("B",)}\nDTYPES = {"target": "int"}\n'
        'RANGES = {"target": "2*H"}\n\n\ndef f(x, packed, target):\n    scale, shift = packed.chunk(2, -1)\n'
        "    return x * scale + shift + packed.gather(1, target[:, None])\n"
    )
    found = file(body)
    assert [tensor.shape for tensor in found.tensors] == [("B", "H2/2"), ("B", "H2"), ("B",)]
    assert found.tensors[2].range == "H2"
    assert 'SHAPES = {"x": ("B", "H2/2"), "packed": ("B", "H2"), "target": ("B",)}' in found.text


def test_given_shapes_win_over_the_files_own(file):
    body = 'SHAPES = {"x": ("B", "H")}\n\n\ndef f(x):\n    return x.exp()\n'
    assert file(body).tensors[0].shape == ("B", "H")
    reference = file(body, shapes={"x": "B,N,T,D"})
    assert reference.tensors[0].shape == ("B", "N", "T", "D")
    assert 'SHAPES = {"x": ("B", "N", "T", "D")}' in reference.text and reference.assumptions == ()


def test_two_dimensional_function_finds_its_shape(file):
    assert file("def f(x):\n    rows, cols = x.shape\n    return x / cols\n").tensors[0].shape == ("B", "H")


def test_file_with_other_imports_is_printed(file):
    reference = file(
        "import numpy as np\n\n\ndef f(x, beta: float = 0.3):\n    z = torch.exp(-x)\n    return x / (1 + (1 - beta) * z) * np.pi\n"
    )
    assert "numpy" not in reference.text
    assert "    z = torch.exp(-x)\n" in reference.text and "(1 - beta)" in reference.text
    assert any("imports numpy" in assumption for assumption in reference.assumptions)


LLAMA = '''class LlamaNorm(nn.Module):
    """RMS normalisation of a large language model."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)
'''


def test_module_is_printed_with_names_casts_parameters_and_scalars(file):
    reference = file(LLAMA, init=["hidden_size=96"])
    assert (
        reference.text
        == '''"""RMS normalisation of a large language model.

Source: user.py, printed from its traced graph.
"""

import torch

SHAPES = {"hidden_states": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}


def op(hidden_states: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    hidden_states_float = hidden_states.float()
    variance = (hidden_states_float**2).mean(-1, keepdim=True)
    hidden_states_2 = hidden_states_float * torch.rsqrt(variance + eps)
    y = weight * hidden_states_2.to(hidden_states.dtype)
    return y
'''
    )
    assert reference.scalars == (Scalar("eps", "float", 1e-6),)
    assert reference.summary == "RMS normalisation of a large language model."


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_printed_module_computes_what_the_module_computes(file, tmp_path, dtype):
    op = function(file(LLAMA, init=["hidden_size=96"]), tmp_path)
    scope = {}
    exec(HEAD + LLAMA, scope)
    module = scope["LlamaNorm"](96, eps=0.25).to(dtype)
    torch.nn.init.normal_(module.weight)
    x = torch.randn(2, 3, 96).to(dtype)
    torch.testing.assert_close(op(x, module.weight, eps=0.25), module(x), rtol=0, atol=0)


def test_small_parameters_do_not_set_the_width(file):
    reference = file(
        "class Poly(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
        "        self.coefficients = nn.Parameter(torch.ones(3) / 3)\n\n    def forward(self, x):\n"
        "        return self.coefficients[0] * x**3 + self.coefficients[1] * x**2 + self.coefficients[2] * x\n",
        init=["dim=32"],
    )
    assert reference.tensors == (Tensor("x", ROWS), Tensor("coefficients", (3,), init="full(0.333333)"))


def test_nested_parameters_and_two_widths(file):
    reference = file(
        "class Scale(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
        "        self.weight = nn.Parameter(torch.randn(size))\n\n\n"
        "class Twice(nn.Module):\n    def __init__(self, hidden, heads):\n        super().__init__()\n"
        "        self.outer = Scale((heads, hidden))\n\n"
        "    def forward(self, x):\n        y = x.unsqueeze(-2) * self.outer.weight\n        return y.sum(-2)\n",
        entry="Twice",
        init=["hidden=16", "heads=40"],
    )
    assert reference.tensors[1] == Tensor("outer_weight", ("K", "H"), init="normal")
    assert "    y = x.unsqueeze(-2) * outer_weight\n" in reference.text


@pytest.mark.parametrize(
    ("source", "init", "line", "arguments"),
    [
        ("torch.nn.functional.silu", [], "y = F.silu(x)", ["x"]),
        ("torch.nn.SiLU", [], "y = F.silu(x)", ["x"]),
        ("torch.sigmoid", [], "y = torch.sigmoid(x)", ["x"]),
        ("torch.nn.GELU", ["approximate='tanh'"], 'y = F.gelu(x, approximate="tanh")', ["x"]),
        ("torch.nn.RMSNorm", ["normalized_shape=64", "eps=1e-5"], "y = F.rms_norm(x, weight.shape, weight, eps)", ["x", "weight", "eps"]),
        ("torch.nn:LayerNorm", ["normalized_shape=64"], "y = F.layer_norm(x, weight.shape, weight, bias, eps)", ["x", "weight", "bias", "eps"]),
        ("torch.nn.LayerNorm", ["normalized_shape=64", "elementwise_affine=False"], "y = F.layer_norm(x, x.shape[-1:], eps=eps)", ["x", "eps"]),
        ("torch.nn.functional.leaky_relu", [], "y = F.leaky_relu(x, negative_slope)", ["x", "negative_slope"]),
    ],
)  # fmt: skip
def test_importable(reading, source, init, line, arguments):
    reference = reading(source, init=init)
    assert f"    {line}\n    return y\n" in reference.text
    assert [a.name for a in (*reference.tensors, *reference.scalars)] == arguments


def test_expression(reading, tmp_path):
    reference = reading("silu(gate) * up * 2 / pi", name="gated")
    assert "y = F.silu(gate) * up * 2 / math.pi" in reference.text
    gate, up = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(function(reference, tmp_path)(gate, up), F.silu(gate) * up * 2 / torch.pi)


ROTATE = """def rotate(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    a, b = q.chunk(2, -1)
    c, d = k.chunk(2, -1)
    return q * cos + torch.cat((-b, a), -1) * sin, k * cos + torch.cat((-d, c), -1) * sin
"""


def test_queries_and_keys_have_heads_and_angles_have_none(file):
    shapes = {tensor.name: tensor.shape for tensor in file(ROTATE).tensors}
    assert shapes == {
        "q": ("B", "N", "T", "H"),
        "k": ("B", "K", "T", "H"),
        "cos": ("B", "T", "H"),
        "sin": ("B", "T", "H"),
    }
    later = file(ROTATE, init=["unsqueeze_dim=2"]).tensors[0]
    assert later.shape == ("B", "T", "N", "H")


def test_labels_are_indices_and_the_file_says_so(file, tmp_path):
    reference = file("def loss(logits, labels):\n    return F.cross_entropy(logits, labels)\n")
    assert reference.tensors == (Tensor("logits", ("B", "H")), Tensor("labels", ("B",), "int", range="H"))
    assert 'DTYPES = {"labels": "int"}\nRANGES = {"labels": "H"}\n' in reference.text
    assert "labels is taken for indices below H" in reference.assumptions
    again = load("op", Source("function", reference.text, "op", "kernels/reference/op.py"), tmp_path)
    assert (again.text, again.tensors, again.assumptions) == (reference.text, reference.tensors, ())


def test_loss_of_torch_keeps_its_reduction(reading):
    reference = reading("torch.nn.functional.huber_loss", init=["reduction='sum'"])
    assert "F.huber_loss(" in reference.text and 'reduction="' in reference.text
    assert reference.tensors[1] == Tensor("target", ROWS)


def test_optional_tensors_are_left_out_but_for_parameters(file):
    body = (
        "class M(nn.Module):\n    def forward(self, x, mask: torch.Tensor | None = None, mu: float = 0.5):\n"
        "        y = (x - mu).exp()\n        return y if mask is None else y * mask\n"
    )
    reference = file(body)
    assert [a.name for a in (*reference.tensors, *reference.scalars)] == ["x", "mu"]
    assert "mask left out (None); pass --shape mask=AXES to take it" in reference.assumptions
    assert [tensor.name for tensor in file(body, shapes={"mask": "B,T,H"}).tensors] == ["x", "mask"]


def test_buffers_are_inputs_without_gradient(file, tmp_path):
    reference = file("class M(nn.BatchNorm1d):\n    pass\n", init=["num_features=6"], shapes={"x": "B,C,L"})
    assert [t.name for t in reference.tensors] == ["x", "weight", "bias", "running_mean", "running_var"]
    x, mean, var = torch.randn(2, 6, 3), torch.randn(6, requires_grad=True), torch.rand(6) + 0.5
    y = function(reference, tmp_path)(x, torch.ones(6), torch.zeros(6), mean, var)
    torch.testing.assert_close(y, F.batch_norm(x, mean.detach(), var))
    assert not y.requires_grad
    assert any("evaluation mode" in said for said in reference.assumptions)


def test_rms_norm_without_eps_takes_that_of_float32(file, tmp_path):
    reference = file("SHAPES = {'x': ('B', 'H')}\n\n\ndef f(x):\n    return F.rms_norm(x, (x.shape[-1],))\n")
    assert "F.rms_norm(x, (x.shape[-1],), eps=torch.finfo(torch.float32).eps)" in reference.text
    given = file("SHAPES = {'x': ('B', 'H')}\n\n\ndef f(x):\n    return F.rms_norm(x, (x.shape[-1],), None, 1e-5)\n")
    assert "finfo" not in given.text


def test_data_is_spelled_as_detach(file):
    reference = file("SHAPES = {'x': ('B', 'H')}\n\n\ndef f(x):\n    return x * x.data.exp()\n")
    assert "x * x.detach().exp()" in reference.text


def test_an_axis_named_twice_is_two_axes_where_they_may_differ(file):
    reference = file("SHAPES = {'x': ('N', 'N')}\n\n\ndef f(x):\n    return x.softmax(-1)\n")
    assert reference.tensors[0].shape == ("N", "N_2")
    assert any("named twice" in said for said in reference.assumptions)
    square = file("SHAPES = {'x': ('N', 'N')}\n\n\ndef f(x):\n    return x + x.t()\n")
    assert square.tensors[0].shape == ("N", "N")


def test_positions_need_no_gradient(file):
    reference = file("SHAPES = {'x': ('N', 'H')}\n\n\ndef f(x):\n    return x.argmin(-1)\n")
    assert [t.name for t in reference.tensors] == ["x"]


def test_an_unannotated_argument_with_a_shape_is_a_tensor(file):
    shapes = "SHAPES = {'x': ('B', 'H'), 'gate': ('B', 'H')}\n\n\n"
    reference = file(shapes + "def f(x, gate=None):\n    return x if gate is None else x * torch.sigmoid(gate)\n")
    assert [(t.name, t.optional) for t in reference.tensors] == [("x", False), ("gate", False)]


def test_ids_are_whole_numbers(file):
    reference = file(
        "class Words(nn.Embedding):\n    def forward(self, input_ids):\n        return super().forward(input_ids) * 2.0\n",
        init=["num_embeddings=9", "embedding_dim=6"],
    )
    assert [(t.name, t.shape, t.dtype, t.range) for t in reference.tensors] == [
        ("input_ids", ("B", "T"), "int", "K"),
        ("weight", ("K", "H"), "float", ""),
    ]


def test_buffer_of_one_number_is_a_constant(file, tmp_path):
    body = (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('beta', torch.tensor(0.25))\n\n"
        "    def forward(self, x):\n        return x * self.beta + torch.minimum(x, self.beta)\n"
    )
    reference = file(body)
    assert "x * 0.25 + x.clamp(max=0.25)" in reference.text
    x = torch.randn(3, 4)
    torch.testing.assert_close(function(reference, tmp_path)(x), x * 0.25 + x.clamp(max=0.25))


def test_numbers_in_an_expression(reading):
    reference = reading("x * rsqrt((x * x).mean(-1, keepdim=True) + eps) * scale + shift", init=["shift=0.5"])
    assert [tensor.name for tensor in reference.tensors] == ["x", "scale"]
    assert reference.scalars == (Scalar("eps", "float", 1e-6), Scalar("shift", "float", 0.5))
    assert "eps is taken for a number with the default 1e-06" in reference.assumptions


def refused(read, kind=BadInput):
    with pytest.raises(kind) as caught:
        read()
    assert caught.value.todo
    return caught.value.what, caught.value.where


@pytest.mark.parametrize(
    ("body", "what", "where"),
    [
        ("def f(x):\n    x.mul_(2)\n    return x\n", "the operation writes to its input 'x' in place", "user.py"),
        ("def f(x, out):\n    y = x * 2\n    out.copy_(y)\n    return y\n", "the operation writes to its input 'out' in place", "user.py"),
        ("def f(x):\n    x.data[0] = 1\n    return x * 2\n", "the operation writes to its input 'x' in place", "user.py"),
        ("def f(x):\n    if x.sum() > 0:\n        return x\n    return -x\n", "the operation reads a tensor's value (bool), so what it does depends on data", "user.py:7"),
        ("def f(x):\n    return x * x.max().item()\n", "the operation reads a tensor's value (item), so what it does depends on data", "user.py:7"),
        ("def f(n: int = 3):\n    return n\n", "the operation takes no tensor", "user.py"),
        ("def f(*xs):\n    return xs[0]\n", "the arguments *xs have no names", "user.py"),
        ("def f(x, shape: list):\n    return x\n", "'shape: list' is neither a tensor nor a number", "user.py"),
        ("def f(x):\n    return {'y': x}\n", "the operation returns dict, not a tensor", "user.py"),
        ("def f(x):\n    return x, 3\n", "the operation returns Tensor, int, not a tensor", "user.py"),
        ("def f(x):\n    x * 2\n", "the operation returns NoneType, not a tensor", "user.py"),
        ("def f(x):\n    return x.detach() * 2\n", "no gradient flows from the output to any input", "user.py"),
        ("def f(x):\n    return torch.softmax(x, -1).mean()\n", "the gradient is zero everywhere", "user.py"),
        ("def f(x, weight=None):\n    return x * weight\n", "without its optional tensors (weight) the operation fails: TypeError: unsupported operand type(s) for *: 'Tensor' and 'NoneType'", "user.py:7"),
        ("import no_such_module\n\n\ndef f(x):\n    return x\n", "module 'no_such_module' can't be imported", "user.py:6"),
        ("def f(x):\n    import no_such_module.deep\n    return x\n", "module 'no_such_module' can't be imported", "user.py:7"),
        ("raise SystemExit(3)\n\n\ndef f(x):\n    return x\n", "the file fails: SystemExit: 3", "user.py:6"),
        ("SHAPES = {'x': torch}\n\n\ndef f(x):\n    return x\n", "SHAPES is no literal of the right form", "user.py:6"),
        ("SHAPES = {'x': ('B', 'N*D')}\n\n\ndef f(x):\n    return x\n", "SHAPES gives x the axis 'N*D'", "user.py:6"),
        ("class Thing:\n    pass\n", "Thing is a class, but no torch.nn.Module", "user.py"),
        ("class M(nn.Module):\n    def __init__(self, rate):\n        super().__init__()\n        self.rate = rate\n\n    def forward(self, x):\n        return x * self.rate\n", "the module's __init__ needs 'rate'", "user.py"),
        ("class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('table', torch.arange(3))\n\n    def forward(self, x):\n        return x\n", "the module holds the buffer 'table' of torch.int64", "user.py"),
        ("class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        raise RuntimeError('no room')\n\n    def forward(self, x):\n        return x\n", "the module can't be built: RuntimeError: no room", "user.py:9"),
    ],
)  # fmt: skip
def test_file_that_cannot_be_used(file, body, what, where):
    assert refused(lambda: file(body)) == (what, where)


CHANNELS_FIRST = """class M(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return self.weight[:, None, None] * x / (x.square().mean(1, keepdim=True) + self.eps).sqrt()
"""


@pytest.mark.parametrize(
    ("body", "shapes", "assumed"),
    [
        (LLAMA, {"hidden_states": ("B", "T", "H"), "weight": ("H",)}, "hidden_size=64"),
        (CHANNELS_FIRST, {"x": ("B", "C", "H", "W"), "weight": ("C",)}, "dim=64"),
        (
            "class M(nn.Module):\n    def __init__(self, channels):\n        super().__init__()\n"
            "        self.alpha = nn.Parameter(torch.ones(1, channels, 1))\n\n    def forward(self, x):\n"
            "        return x + torch.sin(self.alpha * x) ** 2\n",
            {"x": ("B", "C", "T"), "alpha": (1, "C", 1)},
            "channels=64",
        ),
    ],
)
def test_sizes_that_a_module_needs_are_assumed_and_said(file, body, shapes, assumed):
    reference = file(body)
    assert {tensor.name: tensor.shape for tensor in reference.tensors} == shapes
    assert any(f"sizes were not given: assumed {assumed}; pass --init" in said for said in reference.assumptions)


def test_a_gradient_that_is_zero_at_the_smallest_sizes_alone(file):
    body = "def f(x, groups: int = 4):\n    return x.view(x.shape[0], groups, -1).softmax(-1).view(x.shape)\n"
    assert file(body, shapes={"x": "B,C"}).tensors[0].shape == ("B", "C")


def test_shapes_that_cannot_be_guessed(file):
    with pytest.raises(BadInput) as caught:
        file("def f(x):\n    a, b, c, d, e = x.shape\n    return x * e\n")
    assert caught.value.what.startswith(
        "no usual shapes fit: the operation fails: ValueError: not enough values to unpack"
    )
    assert caught.value.todo == "give shapes, for example --shape x=B,T,H"


def test_given_shapes_that_do_not_run(file):
    what, where = refused(lambda: file("def f(x, y):\n    return x + y\n", shapes={"x": "B,H", "y": "B,T"}))
    assert what.startswith("the operation fails: RuntimeError: The size of tensor a") and where == "user.py:7"


def test_shape_of_an_unknown_tensor(file):
    what = refused(lambda: file("def f(x):\n    return x * x\n", shapes={"z": "B,H"}))
    assert what == ("there is no tensor 'z'", "--shape")


def test_unknown_init_argument(file):
    assert refused(lambda: file("def f(x):\n    return x * x\n", init=["n=3"])) == (
        "there is no argument 'n'",
        "--init n",
    )
    told = refused(lambda: file(LLAMA, init=["hidden=3", "hidden_size=8"]))
    assert told == ("the module's __init__ has no argument 'hidden'", "--init hidden")


def test_name_that_the_file_uses_already(file):
    body = "def op(x):\n    return x * 2\n\n\ndef f(x):\n    return op(x)\n"
    assert refused(lambda: file(body, entry="f"))[0] == "the file already uses the name 'op'"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("no_such_package.ops.norm", "module 'no_such_package' can't be imported"),
        ("torch.nn.functional.sillu", "'torch.nn.functional' has no 'sillu'"),
        ("torch.nn.no_such_module.norm", "'torch.nn' has no 'no_such_module.norm'"),
        ("torch.pi", "torch.pi is no function or class"),
        ("torch.nn.Threshold", "the module's __init__ needs 'threshold'"),
        ("swish(gate) * up", "neither torch.nn.functional nor torch has a function 'swish'"),
        ("3 + 4", "the expression has no tensor in it"),
    ],
)
def test_name_that_cannot_be_loaded(reading, source, what):
    assert refused(lambda: reading(source))[0] == what


def test_operation_that_cannot_be_printed_names_its_line(file):
    body = "class M(nn.Module):\n    def forward(self, x):\n        y = x * 2\n        y.add_(1)\n        return y\n"
    what, where = refused(lambda: file(body), Unsupported)
    assert what == "aten.add_ writes in place" and where.endswith(":9")


CHOICES = """
import torch
import torch.nn.functional as F
from typing import Literal

SHAPES = {"x": ("B", "H")}
STATIC = {"groups": [1, 2]}


def op(x: torch.Tensor, p: Literal[2, 1], act: str = "relu", approximate: str = "none", flag: bool = True,
       groups: int = 2, eps: float = 1e-6) -> torch.Tensor:
    if act == "sigmoid" and approximate != "tanh":
        x = x.sigmoid()
    elif act in ("relu", "broken"):
        x = {"relu": F.relu}[act](x)
    return F.gelu(x * p * groups * flag, approximate=approximate) + eps
"""


def test_arguments_whose_values_are_known_have_choices(file):
    """A Literal, STATIC, both values of a flag, strings that are compared, torch's own: as far as the function runs."""
    scalars = {scalar.name: scalar for scalar in file(CHOICES).scalars}
    assert {name: scalar.choices for name, scalar in scalars.items()} == {
        "p": (2, 1),
        "act": ("relu", "sigmoid"),
        "approximate": ("none", "tanh"),
        "flag": (True, False),
        "groups": (2, 1),
        "eps": (),
    }
    assert (scalars["p"].type, scalars["p"].default) == ("int", None)


def test_choices_of_an_unknown_argument(file):
    with pytest.raises(BadInput, match="STATIC names 'q'"):
        file('STATIC = {"q": [1]}\n\n\ndef f(x):\n    return x * 2\n')


@pytest.mark.parametrize(
    ("source", "init", "wanted", "shapes"),
    [
        ("torch.nn:RMSNorm", ["normalized_shape=64"], "eps=torch.finfo(torch.float32).eps", {"x": ("B", "T", "H")}),
        ("torch.nn:InstanceNorm2d", ["num_features=8"], "F.instance_norm(x, eps=eps)", {"x": ("B", "C", "H", "W")}),
        ("torch.nn:GroupNorm", ["num_groups=4", "num_channels=32"], "F.group_norm(x, 4", {"weight": ("C",)}),
        ("torch.nn:LayerNorm", ["normalized_shape=[6, 10]"], "weight.shape", {"weight": ("K", "H")}),
        ("torch.nn.functional:normalize", ["dim=-1"], "torch.linalg.vector_norm(x", {"x": ("B", "T", "H")}),
        ("torch.nn.functional:cosine_similarity", ["dim=-1"], "torch.cosine_similarity(x1, x2", {"x2": ("B", "T", "H")}),
        ("torch.nn.functional:nll_loss", [], "F.nll_loss(x, target)", {"target": ("B",)}),
    ],
)  # fmt: skip
def test_torchs_own(reading, source, init, wanted, shapes):
    """A C++ function's docstring gives its arguments; the weight of a loss is left out; channels come second."""
    reference = reading(source, init=init)
    assert wanted in reference.text
    assert {t.name: t.shape for t in reference.tensors if t.name in shapes} == shapes
