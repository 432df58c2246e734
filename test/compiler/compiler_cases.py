"""References and graphs that the compiler's tests share: from the catalogue, from a body, or built by hand."""

import tempfile

from copy import copy
from dataclasses import fields
from functools import lru_cache
from pathlib import Path

import torch

from liger_dev.compiler import differentiated
from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.compiler.trace import load_function
from liger_dev.loading import load
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.sources import catalog_source

# One operation a class first.
GOLDEN = (
    "rms_norm",
    "layer_norm",
    "softmax",
    "swiglu",
    "dyt",
    "fused_add_rms_norm",
    "cross_entropy",
    "group_norm",
    "rope",
    "modulated_rms_norm",
    "swiglu_packed",
    "token_shift",
    "casting_rms_norm",
    "reduced_mse_loss",
    "cumulative_sum",
    "embedding",
    "ternary_weights",
    "global_response_norm",
    "alibi_softmax",
    "attn_res",
    "sparsemax",
    "seeded_dropout",
    "rope_sectioned",
)
CASES = (*GOLDEN, "gemma_rms_norm", "l2_norm", "log_softmax", "geglu", "geglu_erf", "relu_squared")
ROWS = ("B", "T", "H")
_HEAD = "import torch\nimport torch.nn.functional as F\n\n"


@lru_cache(maxsize=None)
def catalogue(name: str) -> Reference:
    with tempfile.TemporaryDirectory() as folder:
        return load(name, catalog_source(name), Path(folder).resolve())


def written(
    signature: str, body: str, before: str = "", name: str = "op", **shapes: tuple[str | int, ...]
) -> Reference:
    """The reference `name(signature)` with the given body, as a person's file would hold it.

    A name of its own is for references with helpers, which torch.export looks up in a module by that name.
    """
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    text = f"{_HEAD}SHAPES = {shapes!r}\n\n\n{before}def {name}({signature}):\n{lines}\n"
    with tempfile.TemporaryDirectory() as folder:
        return load(name, Source("function", text, name, "op.py"), Path(folder).resolve())


def graph_of(reference: Reference) -> Graph:
    """The graph of outputs and gradients, as it is scheduled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve()
        return differentiated(reference, load_function(reference, path), path / f"{reference.name}.py")


@lru_cache(maxsize=None)
def _catalogue_graph(name: str) -> Graph:
    return graph_of(catalogue(name))


def catalogue_graph(name: str) -> Graph:
    """The graph of a catalogue entry, made once: a test may change its copy."""
    made = _catalogue_graph(name)
    return Graph(**{field.name: copy(getattr(made, field.name)) for field in fields(made)})


def op_graph(signature: str, body: str, before: str = "", name: str = "op", **shapes: tuple[str | int, ...]) -> Graph:
    return graph_of(written(signature, body, before, name, **shapes))


def by_hand(axes: dict[str, tuple[str, ...]]) -> tuple[Graph, list]:
    """An empty graph with the given inputs over their axes."""
    graph = Graph()
    values = []
    for name, dims in axes.items():
        values.append(graph.input(name, dims, "float"))
        graph.inputs.append(Input(name, values[-1], tuple((axis,) for axis in dims)))
        graph.names[values[-1]] = name
    return graph, values


def add_output(graph: Graph, name: str, value) -> None:
    graph.names.setdefault(value, name)
    graph.outputs.append(Output(name, value, tuple((axis,) for axis in sorted(value.axes)), ()))


def gradient(graph: Graph, name: str) -> Value:
    """The gradient of an input that is read whole."""
    return graph.gradients[name, ()]


def gradients_at(graph: Graph, gradients, sizes: dict[str, int], seed: int = 0) -> dict[tuple, torch.Tensor]:
    """The values of gradients in float64 at random inputs and upstream gradients."""
    generator = torch.Generator().manual_seed(seed)
    leaves = {v.attr("name"): v for v in graph.walk([*gradients.values(), *(o.value for o in graph.outputs)])
              if v.op == "input"}  # fmt: skip
    tensors = {
        leaf: torch.randn([n if axis in leaf.axes else 1 for axis, n in sizes.items()], generator=generator).double()
        for _, leaf in sorted(leaves.items())
    }
    return dict(zip(gradients, evaluate(graph, gradients.values(), tensors, {}, sizes)))
