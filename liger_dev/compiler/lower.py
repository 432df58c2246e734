"""An exported graph in, the forward Graph out: one row an ATen operation, axes instead of dimensions."""

from typing import Any

import torch

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Output
from liger_dev.compiler.lowering import Dims
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import rounded
from liger_dev.compiler.rows_pointwise import POINTWISE
from liger_dev.compiler.rows_reduce import REDUCTIONS
from liger_dev.compiler.rows_shape import SHAPES
from liger_dev.compiler.source_names import SourceMap
from liger_dev.compiler.trace import Traced
from liger_dev.errors import Unsupported
from liger_dev.records import Reference

ROWS: dict[str, Row] = {**POINTWISE, **REDUCTIONS, **SHAPES}


def lower(graph: Graph, traced: Traced, reference: Reference) -> list[Output]:
    """Lowers an exported graph into `graph` and returns its outputs. Names are taken from the first one lowered.

    Raises:
        Unsupported: an operation has no row, or axes are split or merged; the node, its line and the reason are named.
    """
    state = Lowering(graph, traced, reference, SourceMap.read(traced.source))
    nodes = list(traced.graph.nodes)
    given = [tensor for tensor in reference.tensors if tensor.name not in traced.absent]
    placeholders = [node for node in nodes if node.op == "placeholder"]
    assert len(placeholders) == len(given), "one placeholder an input"
    first = not graph.inputs
    for node, tensor in zip(placeholders, given):
        dims = _input_dims(state, node, tensor.shape)
        dtype_of = frozenset({tensor.name}) if tensor.dtype == "float" else frozenset()
        value = graph.make("input", axes=frozenset(d for d in dims if d), dtype=tensor.dtype, name=tensor.name)
        state.terms[node] = state.locals[tensor.name] = Term(value, dims, dtype_of)
        if first:
            graph.inputs.append(Input(tensor.name, value, dims, tensor.optional))
            graph.names[value] = tensor.name
    returned = next(node for node in nodes if node.op == "output").args[0]
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    targets = state.source.targets([n for n in nodes if n.op == "call_function" and _is_tensor(n)])
    latest = {name: node for node, name in targets.items()}
    for node in nodes:
        if node.op == "call_function":
            state.node = node
            state.terms[node] = _lower_node(state, node, node in results)
            if node in targets and isinstance(state.terms[node], Term):
                state.locals[targets[node]] = state.terms[node]
                if first and latest[targets[node]] is node:
                    state.name(state.terms[node].value, targets[node])
    return _outputs(state, results)


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _input_dims(state: Lowering, node: Any, shape: tuple[str | int, ...]) -> Dims:
    state.node = node
    dims: list[str | None] = []
    for size, axis in zip(state.shape(node), shape):
        if isinstance(axis, int):
            if axis != 1:
                raise state.refuse(f"an input dimension has the fixed size {axis}", "name the axis instead")
            dims.append(None)
            continue
        known = state.axis_of.setdefault(str(size), axis)
        if known != axis:
            raise state.refuse(f"the reference makes axes {known} and {axis} equal", f"give both the name {known}")
        dims.append(axis)
    if len(set(dims) - {None}) != len([d for d in dims if d]):
        raise state.refuse("an input has the same axis twice", "name its axes differently")
    return tuple(dims)


def _outputs(state: Lowering, results: list[Any]) -> list[Output]:
    names = state.source.returned()
    outputs: list[Output] = []
    for i, node in enumerate(results):
        state.node = node
        if not isinstance(node, torch.fx.Node) or not _is_tensor(node):
            raise Unsupported("the reference returns something that is no tensor", state.reference.name)
        term = state.terms[node]
        if node.op == "placeholder":
            raise state.refuse("an output is an input unchanged")
        fallback = "y" if len(results) == 1 else f"y{i}"
        name = (names[i] if len(names) == len(results) else "") or state.graph.names.get(term.value, fallback)
        if name in {tensor.name for tensor in state.reference.tensors}:
            name = fallback
        low = node.meta["val"].dtype == torch.bfloat16
        value = term.value
        if value.op == "round" and set(value.attr("like")) == term.dtype_of and len(node.users) == 1:
            value = value.args[0]  # the store rounds
        order = [tensor.name for tensor in state.reference.tensors]
        state.name(value, name)
        if value is not term.value and state.graph.names.get(term.value) == name:
            state.graph.names[value] = state.graph.names.pop(term.value)
        outputs.append(Output(name, value, term.dims, tuple(sorted(term.dtype_of, key=order.index)) if low else ()))
    return outputs


def _lower_node(state: Lowering, node: Any, is_result: bool) -> Any:
    target = str(node.target)
    if target.startswith("aten._assert") or target.startswith("aten.sym_constrain"):
        return None
    if target not in ROWS:
        raise state.refuse("the compiler has no row for it", "see `liger-dev list --ops` for what it can express")
    result = ROWS[target](state, *node.args, **node.kwargs)
    if isinstance(result, Term) and is_result and len(node.users) > 1 and result.dtype_of:
        # An output that is used further is used as it is stored, so that backward, which loads it, sees the same.
        result = Term(rounded(state, result.value, result.dtype_of), result.dims, result.dtype_of)
    return result
