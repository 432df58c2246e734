"""What stands between a module's linear layers becomes a reference of its own; benchmark files give shapes."""

import pytest
import torch
import torch.nn.functional as F

from liger_dev.errors import BadInput
from liger_dev.loading import load
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.sources import resolve

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"
ROWS = ("B", "T", "H")


@pytest.fixture
def file(tmp_path):
    def read(body, entry="M", shapes={}, init=(), part=0):
        (tmp_path / "user.py").write_text(HEAD + body)
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        source = resolve("op", f"user.py:{entry}", shapes=shapes, init=list(init), cwd=tmp_path, part=part)
        return load("op", source, work)

    return read


def function(reference):
    scope = {}
    exec(reference.text, scope)
    return scope["op"]


def refused(read):
    with pytest.raises(BadInput) as caught:
        read()
    assert caught.value.exit_code == 2 and caught.value.where and caught.value.todo
    return caught.value


GATED = """class Config:
    def __init__(self, hidden_size=4096, intermediate_size=11008, mlp_bias=False, **others):
        self.hidden_size, self.intermediate_size, self.mlp_bias = hidden_size, intermediate_size, mlp_bias


class M(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x):
        down_proj = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return down_proj
"""


def test_gate_and_up_are_named_after_their_layers(file):
    reference = file(GATED)
    assert reference.tensors == (Tensor("gate", ROWS), Tensor("up", ROWS))
    assert (
        "def op(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:\n    y = F.silu(gate) * up\n" in reference.text
    )
    assert reference.assumptions == (
        "config is a Config, its other sizes small; pass --init config.FIELD=VALUE",
        "cut out of a module, whose linear layers stay outside: takes gate of gate_proj, up of up_proj; goes into down_proj",
        "shapes are those in the module: gate (B, T, H), up (B, T, H); pass --shape to change",
    )
    gate, up = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    torch.testing.assert_close(function(reference)(gate, up), F.silu(gate) * up)


def test_a_shape_that_is_given_wins(file):
    reference = file(GATED, init=["config.mlp_bias=True"], shapes={"gate": "R,K", "up": "R,K"})
    assert [tensor.shape for tensor in reference.tensors] == [("R", "K"), ("R", "K")]


@pytest.mark.parametrize(
    ("body", "init", "what", "where"),
    [
        (GATED, ["config.width=3"], "Config has no field 'width'", "--init config.width"),
        (GATED, ["width=3"], "the module's __init__ has no argument 'width'", "--init width"),
        (GATED.replace("class Config", "class Options"), [], "the class of the argument 'config' is not found", "user.py"),
        (GATED.replace("4096", "[][0]"), [], "the file fails: IndexError: list index out of range", "user.py:7"),
    ],
)  # fmt: skip
def test_configuration_that_cannot_be_built(file, body, init, what, where):
    error = refused(lambda: file(body, init=init))
    assert (error.what, error.where) == (what, where)


def linear(body, layers="self.fc1, self.fc2 = nn.Linear(16, 24), nn.Linear(24, 16)"):
    return (
        f"class M(nn.Module):\n    def __init__(self, eps: float = 1e-5):\n        super().__init__()\n"
        f"        {layers}\n        self.eps = eps\n\n    def forward(self, x):\n{body}"
    )


def test_packed_halves_are_two_inputs(file):
    body = "        a, b = self.fc1(x).chunk(2, -1)\n        return torch.sigmoid(a) * b\n"
    reference = file(linear(body, "self.fc1 = nn.Linear(16, 24)"))
    assert reference.tensors == (Tensor("a", ROWS), Tensor("b", ROWS))
    assert "y = torch.sigmoid(a) * b" in reference.text


def test_casts_follow_the_inputs(file):
    body = "        h = self.fc1(x)\n        h = torch.exp(h.float()).to(x.dtype)\n        return self.fc2(h)\n"
    reference = file(linear(body))
    assert "h = torch.exp(x.float()).to(x.dtype)" in reference.text
    assert function(reference)(torch.zeros(2, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert function(reference)(torch.zeros(2)).dtype == torch.float32


NORMED = (
    "        h = F.layer_norm(x, (16,), eps=self.eps)\n"
    "        h = F.relu(self.fc1(h)) ** 2\n"
    "        return x + self.fc2(h)\n"
)


def test_several_parts_are_listed_and_chosen(file):
    error = refused(lambda: file(linear(NORMED)))
    assert error.what == "the module has 3 parts between its linear layers"
    assert error.todo == (
        "choose one: --part 1: layer_norm of x, into fc1; --part 2: relu, pow of x, into fc2; --part 3: add of x, fc2"
    )
    assert "h = F.layer_norm(x, x.shape[-1:])" in file(linear(NORMED), part=1).text
    assert "h = F.relu(x)**2" in file(linear(NORMED), part=2).text.replace(" ** ", "**")
    assert [tensor.name for tensor in file(linear(NORMED), part=3).tensors] == ["x", "fc2"]
    assert refused(lambda: file(linear(NORMED), part=4)).what == error.what


def test_a_layer_between_two_uses_of_a_value_parts_them(file):
    body = "        h = torch.exp(x)\n        return h * self.fc2(self.fc1(h))\n"
    assert refused(lambda: file(linear(body))).what == "the module has 2 parts between its linear layers"
    assert [tensor.name for tensor in file(linear(body), part=2).tensors] == ["h", "fc2"]


def test_heads_become_an_axis(file):
    body = (
        "        q = self.q_proj(x).view(*x.shape[:-1], 5, 8).transpose(1, 2)\n"
        "        k = self.k_proj(x).view(*x.shape[:-1], 5, 8).transpose(1, 2)\n"
        "        q, k = torch.tanh(q) + k, k * torch.sigmoid(q)\n        return q @ k.transpose(-1, -2)\n"
    )
    reference = file(linear(body, "self.q_proj, self.k_proj = nn.Linear(16, 40), nn.Linear(16, 40)"))
    assert [tensor.name for tensor in reference.tensors] == ["q", "k"]
    assert reference.tensors[0].shape == ("B", "N", "T", "H")


def test_parameters_inside_the_part_come_along(file):
    layers = "self.fc1, self.norm = nn.Linear(16, 24), nn.LayerNorm(24)"
    reference = file(linear("        return self.norm(self.fc1(x))\n", layers))
    assert reference.tensors == (
        Tensor("x", ROWS),
        Tensor("norm_weight", ("H",), init="ones"),
        Tensor("norm_bias", ("H",), init="zeros"),
    )


@pytest.mark.parametrize(
    ("body", "part", "what"),
    [
        (linear("        return self.fc2(self.fc1(x).contiguous())\n"), 0, "there is nothing but linear layers in the module"),
        ("class M(nn.Module):\n    def forward(self, x):\n        return x.exp()\n", 1, "the module holds no linear layers to cut at"),
        ("def M(x):\n    return x.exp()\n", 2, "a function has no parts to cut out"),
    ],
)  # fmt: skip
def test_nothing_to_cut_out(file, body, part, what):
    assert refused(lambda: file(body, part=part)).what == what


def benchmark(model, inputs, init="[]", numbers=""):
    return f"{model}\n\n{numbers}\n\ndef get_inputs():\n    return {inputs}\n\n\ndef get_init_inputs():\n    return {init}\n"


RMS = '''class Model(nn.Module):
    """Root mean square normalisation over channels."""

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        rms = torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return x / rms
'''


def test_benchmark_file_of_a_size_that_would_fill_the_memory(file):
    reference = file(benchmark(RMS, "[torch.rand(batch, 64, 512, 512)]", "[64]", "batch = 100_000"), "Model")
    assert reference.tensors == (Tensor("x", ("B", "C", "H", "W")),)
    assert reference.scalars == (Scalar("eps", "float", 1e-5),)
    assert "rms = torch.sqrt((x**2).mean(1, keepdim=True) + eps)" in reference.text.replace(" ** ", "**")
    said = "axes are named after the sizes of get_inputs: x (B, C, H, W); pass --shape to change"
    assert said in reference.assumptions


def model(arguments, body, made=""):
    return (
        f"class Model(nn.Module):\n    def __init__(self, size=0):\n        super().__init__()\n{made}\n"
        f"    def forward(self, {arguments}):\n        {body}\n"
    )


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (benchmark(model("a, b", "return a * b"), "[torch.rand(32, 48), torch.rand(48)]"), {"a": ("B", "H"), "b": ("H",)}),
        (benchmark(model("x, y", "return x * y"), "[torch.rand(32, 32), torch.rand(32, 32)]"), {"x": ("B", "H"), "y": ("B", "H")}),
        (benchmark(model("x, t", "return F.cross_entropy(x, t)"), "[torch.rand(32, 10), torch.randint(0, 10, (32,))]"), {"x": ("B", "H"), "t": ("B",)}),
        (benchmark(model("x, t", "return F.cross_entropy(x, t)"), "[torch.rand(10, 10), torch.randint(0, 10, (10,))]"), {"x": ("B", "H"), "t": ("B",)}),
        (benchmark(model("x, t", "return x * x.gather(1, t[:, None]).sum()"), "[torch.rand(10, 10), torch.randint(0, 10, (10,))]"), {"x": ("B", "H"), "t": ("B",)}),
        (benchmark(model("x", "return F.group_norm(x, 8)"), "[torch.rand(16, 16, 16, 16)]"), {"x": ("B", "C", "H", "W")}),
        (benchmark(model("x", "return self.norm(x)", "        self.norm = nn.LayerNorm((6, 8, 8))\n"), "[torch.rand(4, 6, 8, 8)]"), {"x": ("B", "C", "H", "W"), "norm_weight": ("C", "H", "W"), "norm_bias": ("C", "H", "W")}),
        (benchmark(model("x", "return x * torch.sigmoid(self.fc(x))", "        self.fc = nn.Linear(size, 24)\n"), "[torch.rand(12, 24)]", "[24]"), {"x": ("B", "H"), "fc": ("B", "H")}),
    ],
    ids=["broadcast", "square", "indices", "indices-of-equal-size", "gathered", "groups", "parameters", "cut"],
)  # fmt: skip
def test_axes_of_benchmark_files(file, text, shapes):
    assert {tensor.name: tensor.shape for tensor in file(text, "Model").tensors} == shapes


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (benchmark(model("x", "return x"), "[torch.rand(2), 3]"), "get_inputs does not fit forward: TypeError"),
        (benchmark(model("x", "return x"), "[3.0]"), "get_inputs returns no tensor"),
        (benchmark(model("x", "return x"), "[nothing]"), "get_inputs fails: NameError"),
        (benchmark(model("x", "return x"), "[torch.rand(2)]", "[1, 2, 3]"), "get_init_inputs fails: TypeError"),
        (benchmark(model("x", "return x + torch.ones(3)"), "[torch.rand(2, 8)]"), "the operation fails: RuntimeError"),
    ],
)
def test_benchmark_file_that_cannot_be_used(file, text, what):
    assert refused(lambda: file(text, "Model")).what.startswith(what)
