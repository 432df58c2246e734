"""Each torch function that has a row: its graph in float64, and its kernels in Triton's interpreter, against autograd."""

import functools
import os
import re
import subprocess
import sys

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from compiler_cases import graph_of
from compiler_cases import written
from pointwise_cases import CASES
from pointwise_cases import DOMAINS

from liger_dev.compiler import describe
from liger_dev.compiler import operation_values
from liger_dev.compiler import scheduled
from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.evaluate import laid_out
from liger_dev.compiler.options import Options
from liger_dev.compiler.slices import output_slices
from liger_dev.errors import LigerDevError
from liger_dev.generator import OP
from liger_dev.profile import KernelProfile
from liger_dev.render import render
from liger_dev.template_values import values

REPO = Path(__file__).parents[2]
SIZES = {"B": 3, "H": 37}
SHAPES = {"x": ("B", "H"), "z": ("B", "H"), "w": ("H",), "m": ("B", "H"), "k": ("B", "H")}
DTYPES = {"m": "bool", "k": "int"}


def variables(line):
    return [name for name in SHAPES if re.search(rf"\b{name}\b", line)]


@functools.lru_cache(maxsize=None)
def inputs(domain, line):
    """Tensors by name, of float32 numbers: the domain's edges in all places, then numbers drawn between them."""
    generator = torch.Generator().manual_seed(11)
    edges = torch.tensor(DOMAINS[domain])
    given = {}
    for name in variables(line):
        shape = [SIZES[axis] for axis in SHAPES[name]]
        if name == "m":
            given[name] = torch.rand(shape, generator=generator) < 0.5
        elif name == "k":
            given[name] = torch.randint(0, 4, shape, generator=generator)
        else:
            picked = edges[torch.randint(0, len(edges), shape, generator=generator)]
            low, high = float(edges.min()), min(float(edges.max()), 4.0)
            drawn = max(low, -4.0) + (high - max(low, -4.0)) * torch.rand(shape, generator=generator)
            given[name] = torch.where(torch.rand(shape, generator=generator) < 0.6, picked, drawn)
    return given


def reference(line):
    names = variables(line)
    shapes = {name: SHAPES[name] for name in names}
    dtypes = {name: DTYPES[name] for name in names if name in DTYPES}
    before = f"DTYPES = {dtypes}\n\n\n" if dtypes else ""
    return written(", ".join(f"{n}: torch.Tensor" for n in names), f"return {line}", before, **shapes)


@functools.lru_cache(maxsize=None)
def graph(line):
    return graph_of(reference(line))


@functools.lru_cache(maxsize=None)
def truth(domain, line):
    """The upstream gradient, then the output and the gradients in float64."""
    given = {
        name: x.double().requires_grad_() if x.is_floating_point() else x for name, x in inputs(domain, line).items()
    }
    y = eval(line, {"torch": torch, "F": F}, given)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
    leaves = [x for x in given.values() if x.requires_grad]
    gradients = torch.autograd.grad(y, leaves, upstream.double(), allow_unused=True)
    pairs = zip(gradients, leaves)
    return upstream, [y.detach().double(), *(torch.zeros_like(x) if d is None else d for d, x in pairs)]


def check(found, wanted, rtol, atol):
    """Equal, but where torch's own result in float64 is no number, or none that float32 holds."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert one.shape == other.shape
        defined = torch.isfinite(other) & (other.abs() < 1e30)
        assert defined.float().mean() > 0.5
        torch.testing.assert_close(one.double()[defined], other[defined], rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_graph_is_torchs(case):
    given, (upstream, wanted) = inputs(*case), truth(*case)
    made = graph(case[1])
    (output,) = made.outputs
    sizes = {axis: eval(text, {}, dict(given)) for axis, text in made.sizes.items()}
    roots = [(output.name, cut, value) for cut, value in output_slices(output)]
    roots += [(f"d{name}", cut, value) for (name, cut), value in made.gradients.items()]
    names = [output.name, *(f"d{name}" for name, x in given.items() if x.is_floating_point())]
    known = {**given, f"d{output.name}": upstream, **dict(zip(names, wanted))}

    def laid(name, cut, tensors):
        return laid_out(tensors[name], made.dims_of(name), cut, sizes)

    values = [value for _, _, value in roots]
    leaves = {v: laid(v.attr("name"), v.attr("slices"), known) for v in made.walk(values) if v.op == "input"}
    found = evaluate(made, values, leaves, {}, sizes)
    expected = [laid(name, cut, known) for name, cut, _ in roots]
    check([f.expand_as(e) for f, e in zip(found, expected)], expected, 1e-9, 1e-12)


@pytest.fixture(scope="module")
def in_triton(tmp_path_factory):
    """What each case's kernels computed in the interpreter, in one child for all."""
    folder = tmp_path_factory.mktemp("pointwise")
    (folder / "ops").mkdir()
    given, refused = {}, {}
    for i, (domain, line) in enumerate(CASES):
        try:
            text, name = op_text(line)
        except (LigerDevError, AssertionError) as error:  # it fails its own test
            refused[domain, line] = f"{type(error).__name__}: {error}"
            continue
        (folder / "ops" / f"op_{i}.py").write_text(text)
        given[i] = (name, list(inputs(domain, line).values()), truth(domain, line)[0])
    torch.save(given, folder / "inputs.pt")
    path = os.pathsep.join([str(REPO), str(Path(__file__).parent)])
    env = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "run_ops.py"), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results = torch.load(folder / "outputs.pt")
    return {CASES[i]: result for i, result in results.items()} | refused


def op_text(line):
    made = reference(line)
    host = scheduled(made, graph(line), Options())
    facts = {"closest_existing_kernel": "none", **describe(host, ["float32"])}
    named = {**values(made, KernelProfile.model_validate(facts)), **operation_values([({}, host)], ["float32"])}
    return render(OP, named), named["function_class_name"]


@pytest.mark.parametrize("case", CASES, ids=": ".join)
def test_kernels_are_torchs(case, in_triton):
    found = in_triton[case]
    assert not isinstance(found, str), found
    check(found, truth(*case)[1], 2e-5, 2e-6)


@pytest.mark.parametrize(
    "line, reason",
    [
        ("x * x.prod()", "aten.prod.default is not supported: it is the product of the whole tensor"),
        ("x + x.argmax()", "it counts the elements of the whole tensor"),
        ("x * torch.topk(x, 5, -1)[0].sum()", "a sorted row is used for more than a threshold"),
        ("F.dropout(x, 0.5)", "aten.dropout.default is not supported: it draws random numbers"),
        ("torch.nan_to_num(x)", "its largest number depends on the dtype"),
        ("torch.lgamma(x)", "lgamma has no gradient rule"),
        ("torch.digamma(x) * x", "aten.digamma.default is not supported"),
        ("x.to(torch.float64) * 2", "aten.to.dtype is not supported: a cast to torch.float64"),
        ("x.half() * z", "a cast to torch.float16 whose result is not cast back"),
        ("x * torch.tensor([2.0, 3.0]).sum()", "a tensor of 2 numbers"),
        ("x.cumsum(-1)[:, ::2] * 2", "a slice of a running sum or product"),
        ("x * torch.roll(x, 1)", "it rolls the tensor as one run of elements"),
        ("F.pad(x[None], (1, 1), mode='reflect')[0]", "it pads with reflect values"),
        ("torch.roll(x.cumsum(-1), 1, -1)", "a running sum read at other positions of H"),
        ("torch.cat((x, z), -1).cumsum(-1)", "a running sum or product over a concatenation"),
        ("x * torch.cummax(x, -1)[0]", "aten.cummax.default is not supported"),
    ],
)
def test_refusals_name_the_operation(line, reason):
    with pytest.raises(LigerDevError) as caught:
        graph(line)
    assert reason in caught.value.what
    assert line in caught.value.where


def test_decompositions_round_nothing_and_keep_names():
    """log_ndtr has no row; torch's decomposition of it casts to float32 and back."""
    made = graph_of(written("x: torch.Tensor", "tail = torch.special.log_ndtr(x)\nreturn tail * x", x=("B", "H")))
    values = made.walk([made.outputs[0].value])
    assert "round" not in {v.op for v in values} and "erfc" in {v.op for v in values}
    assert "tail" in made.names.values() and made.outputs[0].dtype_of == ("x",)


def test_the_references_own_casts_stay_beside_a_decomposition():
    body = "tail = torch.special.log_ndtr(x.float()).to(x.dtype)\nreturn tail * x"
    made = graph_of(written("x: torch.Tensor", body, x=("B", "H")))
    assert [v.op for v in made.walk([made.outputs[0].value])].count("round") == 1


@pytest.mark.parametrize(
    "body, through_the_maximum",
    [
        ("e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)", False),
        ("s = x - x.amax(-1, keepdim=True)\nreturn s - s.exp().sum(-1, keepdim=True).log()", False),
        ("m = x.max(-1, keepdim=True)[0]\nreturn m + (x - m).exp().sum(-1, keepdim=True).log() + x", False),
        ("e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / (1 + e.sum(-1, keepdim=True))", True),
        ("return torch.exp(x - x.amax(-1, keepdim=True))", True),
        ("return x / x.abs().amax(-1, keepdim=True)", True),
    ],
)
def test_only_a_shift_carries_no_gradient(body, through_the_maximum):
    made = graph_of(written("x: torch.Tensor", body, x=("B", "H")))
    compared = {v.op for v in made.walk(made.gradients.values())} & {"eq"}
    assert bool(compared) == through_the_maximum
