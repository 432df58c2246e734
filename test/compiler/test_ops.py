"""Every row of the table of operations means the same to torch, to autograd, to Triton and to a formula's reader."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest
import torch

from compiler_cases import by_hand

from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.formulas import formula
from liger_dev.compiler.ops import ATOM
from liger_dev.compiler.ops import OPS

REPO = Path(__file__).parents[2]

# Operations on integers and on probabilities, the guard of a length whose gradient passes as torch lets it, and what is
# left out beside a weight of 0, are tested as what references do with them, in test_pointwise.
BITS = ("bitand", "bitor", "bitxor", "shift_left", "shift_right")
CROSS_ENTROPIES = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
ELSEWHERE = ("int", "mod", *BITS, *CROSS_ENTROPIES, "at_least", "where_weighted")
ROWS = [name for name, row in OPS.items() if row.evaluate is not None and name not in ELSEWHERE]
SPELLED = [name for name in ROWS if OPS[name].triton]
INFIX = [name for name in ROWS if OPS[name].formula_strength != ATOM and OPS[name].arity == 2]

# Arguments that are no floats, and attributes.
KINDS = {"and": ("bool", "bool"), "or": ("bool", "bool"), "not": ("bool",), "where": ("bool",), "float": ("int",)}
ATTRIBUTES = {"round": {"like": ("x0",)}, "fixed": {"to": "float16"}}

# What torch calls an operation, where it is not torch.NAME.
TORCH = {
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "clamp_min": lambda x, bound: torch.clamp(x, min=bound),
    "clamp_max": lambda x, bound: torch.clamp(x, max=bound),
    "float": lambda x: x.double(),
    "round": lambda x, like: x,
    "fixed": lambda x, to: x.half().double(),
    "detach": lambda x: x.detach(),
    "norm_root": torch.sqrt,
    "rint": torch.round,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "hardswish": torch.nn.functional.hardswish,
    "softplus": lambda x: torch.nn.functional.softplus(x, threshold=1e9),
}

# Zeros, ties between neighbours of the table, small and large numbers of both signs.
EDGES = (0.0, 1.0, -1.0, 0.5, -0.5, 1e-3, -1e-3, 2.0, -2.0, 3.0, 7.0, -7.0)


def kind(name, position):
    kinds = KINDS.get(name, ())
    return kinds[position] if position < len(kinds) else "float"


def arguments(name):
    """Tensors in float64, bool or int: all pairs of edges, then random numbers."""
    generator = torch.Generator().manual_seed(7)
    edges = torch.tensor(EDGES, dtype=torch.float64)
    first, second = (part.flatten() for part in torch.meshgrid(edges, edges, indexing="ij"))
    third = torch.roll(second, 5)
    drawn = 2 * torch.randn(3, 60, generator=generator).double()
    columns = [torch.cat([part, more]) for part, more in zip((first, second, third), drawn)]
    # A row of more arguments takes further rotations of the first.
    count = OPS[name].arity or 2
    columns += [torch.roll(columns[0], 11 * i) for i in range(1, count - 2)]
    casts = {"float": lambda x: x, "bool": lambda x: x > 0, "int": lambda x: x.round().long()}
    return [casts[kind(name, i)](column) for i, column in enumerate(columns[:count])]


def in_torch(name, tensors):
    function = TORCH.get(name) or getattr(torch, name, None) or getattr(torch.special, name)
    return function(*tensors, **ATTRIBUTES.get(name, {}))


def graph_of_row(name, tensors):
    graph, _ = by_hand({})
    args = [graph.input(f"x{i}", {"N"}, kind(name, i)) for i in range(len(tensors))]
    for arg in args:
        graph.names[arg] = arg.attr("name")
    value = graph.make(name, *args, **ATTRIBUTES.get(name, {}))
    return graph, args, value, dict(zip(args, tensors))


@pytest.mark.parametrize("name", ROWS)
def test_evaluation_is_torchs(name):
    tensors = arguments(name)
    graph, _, value, named = graph_of_row(name, tensors)
    (found,) = evaluate(graph, [value], named, {}, {"N": len(tensors[0])})
    wanted = in_torch(name, tensors)
    assert value.dtype == {torch.bool: "bool", torch.float64: "float"}[wanted.dtype]
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0, equal_nan=True)
    assert torch.isfinite(wanted).sum() > 20


@pytest.mark.parametrize("name", [name for name in ROWS if OPS[name].adjoint is not None])
def test_adjoint_is_autograds(name):
    tensors = arguments(name)
    graph, args, value, named = graph_of_row(name, tensors)
    size = len(tensors[0])
    upstream = torch.randn(size, generator=torch.Generator().manual_seed(3)).double()
    seed = graph.input("dy", {"N"}, "float")
    parts = OPS[name].adjoint(graph, value, seed)
    assert len(parts) == len(args)
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in tensors]
    wanted = [x for x in leaves if x.requires_grad]
    result = in_torch(name, leaves)
    if not result.requires_grad:
        assert all(part is None for part, arg in zip(parts, args) if arg.dtype == "float")
        return
    truths = iter(torch.autograd.grad(result, wanted, upstream, allow_unused=True))
    for part, leaf in zip(parts, leaves):
        truth = next(truths) if leaf.requires_grad else None
        if part is None:
            assert truth is None or not truth.any(), "torch has a gradient where the table has none"
            continue
        truth = torch.zeros(size, dtype=torch.float64) if truth is None else truth
        (found,) = evaluate(graph, [part], {**named, seed: upstream}, {}, {"N": size})
        found = found.expand(size)
        # Where torch itself has no finite gradient, or no finite result, ours may be anything.
        defined = torch.isfinite(truth) & torch.isfinite(result.detach())
        assert defined.sum() > 20
        torch.testing.assert_close(found[defined], truth[defined], rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def in_triton(tmp_path_factory):
    """For each row, what its spelling gave in the interpreter, and what the compiler said for sm_90."""
    folder = tmp_path_factory.mktemp("spellings")
    kernels = "\n\n".join(kernel_text(name) for name in SPELLED)
    (folder / "spelled.py").write_text(
        "import triton\nimport triton.language as tl\n\nfrom triton.language.extra import libdevice\n\n"
        "from kernels.ops.utils import branchless_tanh\n\n\n" + kernels
    )
    inputs = {name: [x.double().tolist() for x in arguments(name)] for name in SPELLED}
    (folder / "inputs.json").write_text(json.dumps(inputs))
    results = {}
    for mode in ("interpret", "compile"):
        env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        env |= {"PYTHONPATH": f"{folder}{os.pathsep}{REPO}", "TRITON_CACHE_DIR": str(folder / "cache")}
        env |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""} if mode == "interpret" else {}
        script = str(Path(__file__).parent / "run_spellings.py")
        done = subprocess.run([sys.executable, script, mode, str(folder)], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        results[mode] = json.loads((folder / f"{mode}.json").read_text())
    return results


def kernel_text(name):
    """A kernel that loads the row's arguments as float32 and stores its spelling's result."""
    count = len(arguments(name))
    loads = []
    for i in range(count):
        cast = {"float": "", "bool": " != 0.0", "int": ".to(tl.int64)"}[kind(name, i)]
        loads.append(f"    x{i} = tl.load(x{i}_ptr + offsets, mask=mask, other=1.0){cast}\n")
    pointers = "".join(f"x{i}_ptr, " for i in range(count))
    spelled = OPS[name].triton.format(*(f"x{i}" for i in range(count)))
    return (
        f"@triton.jit\ndef kernel_{name}({pointers}y_ptr, n, BLOCK: tl.constexpr):\n"
        "    offsets = tl.arange(0, BLOCK)\n    mask = offsets < n\n"
        f"{''.join(loads)}    y = {spelled}\n"
        "    tl.store(y_ptr + offsets, y.to(tl.float32), mask=mask)\n"
    )


@pytest.mark.parametrize("name", SPELLED)
def test_triton_spelling_computes_the_same(name, in_triton):
    tensors = arguments(name)
    singles = [x.float() if x.is_floating_point() else x for x in tensors]
    wanted = in_torch(name, [x.double() if x.is_floating_point() else x for x in singles]).double()
    found = torch.tensor(in_triton["interpret"][name], dtype=torch.float64)
    defined = torch.isfinite(wanted) & (wanted.abs() < torch.finfo(torch.float32).max)
    torch.testing.assert_close(found[defined], wanted[defined], rtol=2e-6, atol=1e-7)
    assert torch.isnan(found[torch.isnan(wanted)]).all()


def test_tanh_errs_by_few_units_in_the_last_place(in_triton):
    (x,) = arguments("tanh")
    wanted, found = x.float().double().tanh(), torch.tensor(in_triton["interpret"]["tanh"], dtype=torch.float64)
    unit = torch.nextafter(wanted.float().abs(), torch.tensor(float("inf"))).double() - wanted.float().abs()
    error = ((found - wanted).abs() / unit)[wanted != 0.0]
    near = (x.abs() < 0.55)[wanted != 0.0]
    assert near.sum() > 10 and (~near).sum() > 10
    assert error.max() < 4


@pytest.mark.parametrize("name", SPELLED)
def test_triton_spelling_compiles(name, in_triton):
    assert in_triton["compile"][name] == ""


READING = {
    **TORCH,
    **{name: getattr(torch.special, name) for name in ("entr", "erfcx", "xlog1py")},
    **{name: getattr(torch, name) for name in dir(torch) if not name.startswith("_")},
    "max": torch.maximum,
    "min": torch.minimum,
    "float": lambda x: x.double(),
    "float16": lambda x: x.half().double(),
}


def read(text, tensors):
    """A formula's right-hand side as Python reads it, element by element."""
    size = len(next(iter(tensors.values())))
    rows = [{name: x[i] for name, x in tensors.items()} for i in range(size)]
    return torch.tensor([float(eval(text, {**READING, **row})) for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("name", ROWS)
def test_formula_reads_as_the_operation(name):
    tensors = arguments(name)
    graph, _, value, named = graph_of_row(name, tensors)
    text = formula(graph, "y", value)
    assert text.startswith("y = ")
    found = read(text.removeprefix("y = ").replace("round(", "("), {v.attr("name"): x for v, x in named.items()})
    torch.testing.assert_close(found, in_torch(name, tensors).double(), rtol=1e-12, atol=0, equal_nan=True)


def nested(outer, inner, place):
    """A graph of `outer` with `inner` as its operand at `place`, and one input for each other operand."""
    graph, _ = by_hand({})
    inputs = []
    for i in range(3):
        inputs.append(graph.input(f"x{i}", {"N"}, "float"))
        graph.names[inputs[-1]] = f"x{i}"

    def fitting(name, value):
        return graph.make("gt", value, graph.const(0.0)) if kind(name, 0) == "bool" else value

    part = graph.make(inner, *(fitting(inner, x) for x in inputs[:2]))
    if kind(outer, 0) == "bool" and part.dtype != "bool" or kind(outer, 0) != "bool" and part.dtype == "bool":
        return None
    other = fitting(outer, inputs[2])
    return graph, inputs, graph.make(outer, *((part, other) if place == 0 else (other, part)))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("inner", INFIX)
@pytest.mark.parametrize("outer", INFIX)
def test_formula_groups_operands(outer, inner, place):
    made = nested(outer, inner, place)
    if made is None:
        return
    graph, inputs, value = made
    columns = [x[::3] for x in arguments("where")[1:] + [arguments("add")[0]]]
    tensors = {f"x{i}": x for i, x in enumerate(columns)}
    (wanted,) = evaluate(graph, [value], dict(zip(inputs, columns)), {}, {"N": len(columns[0])})
    found = read(formula(graph, "y", value).removeprefix("y = "), tensors)
    torch.testing.assert_close(found, wanted.double(), rtol=1e-12, atol=1e-12, equal_nan=True)
