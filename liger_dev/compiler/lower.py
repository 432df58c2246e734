"""An exported graph in, the forward Graph out: one row an ATen operation, axes instead of dimensions."""

from typing import Any

import torch

from liger_dev.axes import extent
from liger_dev.axes import identifier
from liger_dev.axes import part_of
from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Input
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import axes_of
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import SameAxis
from liger_dev.compiler.lowering import SplitAxis
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import rounded
from liger_dev.compiler.reserved import WRAPPERS
from liger_dev.compiler.rows_complex import Complex
from liger_dev.compiler.rows_complex import lower_complex
from liger_dev.compiler.rows_index import INDEXED
from liger_dev.compiler.rows_pointwise import POINTWISE
from liger_dev.compiler.rows_reduce import REDUCTIONS
from liger_dev.compiler.rows_shape import SHAPES
from liger_dev.compiler.rows_write import WRITES
from liger_dev.compiler.shapes import dividend
from liger_dev.compiler.shapes import factor
from liger_dev.compiler.slices import Slicer
from liger_dev.compiler.slices import lift
from liger_dev.compiler.source_names import SourceMap
from liger_dev.compiler.trace import Traced
from liger_dev.errors import Unsupported
from liger_dev.records import Reference
from liger_dev.records import Tensor

ROWS: dict[str, Row] = {**POINTWISE, **REDUCTIONS, **SHAPES, **INDEXED, **WRITES}


def lower(graph: Graph, traced: Traced, reference: Reference, searching: bool = False) -> list[Output]:
    """Lowers an exported graph into `graph` and returns its outputs. Names are taken from the first one lowered.
    `searching`: a row's largest elements are searched one by one.

    Raises:
        Unsupported: an operation has no row, or an axis is used in a way that is not expressible; the node, its line and
            the reason are named.
    """
    parts: dict[str, tuple[str, ...]] = {}
    first = not graph.inputs
    while True:
        state = _start(graph, traced, reference, parts)
        state.searching = searching
        try:
            outputs = _lower_all(state, first)
        except SplitAxis as split:
            _restart(state, split, parts, first)
            continue
        except SameAxis as same:
            _join(state, same, parts, first)
            continue
        lifted = Graph(
            inputs=graph.inputs,
            outputs=outputs,
            names=graph.names,
            lines=graph.lines,
            sizes=graph.sizes,
            extents=graph.extents,
            lengths=graph.lengths,
            _values=graph._values,
        )
        lift(lifted, state.slicer)
        graph.extents.update(state.hints)
        return lifted.outputs


def _start(graph: Graph, traced: Traced, reference: Reference, parts: dict[str, tuple[str, ...]]) -> Lowering:
    state = Lowering(graph, traced, reference, SourceMap.read(traced.source), parts=parts)
    graph.fixed = traced.fixed
    if not graph.sizes:
        graph.sizes.update(_axis_expressions(reference))
    state.hints.update({axis: traced.sizes[axis] for axis in graph.sizes if axis in traced.sizes})
    parts_of = {identifier(str(axis)): axis for tensor in reference.tensors for axis in tensor.shape if part_of(axis)}
    state.hints.update({name: extent(axis, traced.sizes) for name, axis in parts_of.items()})
    state.hints.update({axis: int(size) for axis, size in graph.sizes.items() if size.isdigit()})
    state.slicer = Slicer(graph, lambda value, axis: _position(state, value, axis))
    return state


def _position(state: Lowering, value: Value, axis: str) -> int:
    """The dimension of an input that an axis is read along."""
    slices = dict(value.attr("slices"))
    for position, dim in enumerate(next(i.dims for i in state.graph.inputs if i.name == value.attr("name"))):
        if axis in slices.get(position, Slice(dim)).axes:
            return position
    raise AssertionError(f"{value} has no dimension of {axis}")


def _restart(state: Lowering, split: SplitAxis, parts: dict[str, tuple[str, ...]], first: bool) -> None:
    """Replaces an axis by two, whose sizes are known numbers, other axes, or the quotient."""
    graph, whole = state.graph, state.graph.sizes[split.axis]
    if split.axis not in {axis for item in graph.inputs for axis in axes_of(item.dims)}:
        raise state.refuse(
            f"it splits {split.axis}, which is no axis of an input but of a piece of one", "split the input itself"
        )
    names: list[str] = []
    for i, (size, static) in enumerate(zip(split.sizes, split.static)):
        alike = [axis for axis, extent in state.hints.items() if extent == size and axis != split.axis]
        known = next((axis for axis in alike if not static or graph.sizes[axis] == str(size)), "")
        if known:
            names.append(known)
        elif static:
            names.append(state.new_axis(f"{split.axis}_{i}", size, _argument(state, size) or str(size)))
        else:
            names.append("")
    for i, name in enumerate(names):
        if not name:
            other = names[1 - i]
            if not other:
                raise state.refuse(f"{split.axis} is split into parts of unknown size")
            names[i] = state.new_axis(
                f"{split.axis}_{i}", split.sizes[i], f"{dividend(whole)} // {factor(graph.sizes[other])}"
            )
    for axis, existing in list(parts.items()):
        parts[axis] = tuple(p for a in existing for p in (names if a == split.axis else (a,)))
    parts[split.axis] = tuple(names)
    state.traced.sizes.update({name: state.hints[name] for name in names})
    if first:
        graph.inputs.clear()
        graph.names.clear()


def _argument(state: Lowering, size: int) -> str:
    """The integer argument that a static size may come from: the only one of that value. `counts.prove` tries it."""
    found = [s.name for s in state.reference.scalars if s.type == "int" and s.default == size]
    return found[0] if len(found) == 1 and found[0] not in state.traced.tags else ""


def _join(state: Lowering, same: SameAxis, parts: dict[str, tuple[str, ...]], first: bool) -> None:
    """Takes one axis for another everywhere."""
    for axis, existing in list(parts.items()):
        parts[axis] = tuple(same.kept if a == same.axis else a for a in existing)
    parts[same.axis] = (same.kept,)
    if first:
        state.graph.inputs.clear()
        state.graph.names.clear()


def _axis_expressions(reference: Reference) -> dict[str, str]:
    """Each named axis's size, read off the first tensor that has it; the last dimensions counted from the end."""
    sizes: dict[str, str] = {}
    required = [*(t for t in reference.tensors if not t.optional), *(t for t in reference.tensors if t.optional)]
    for tensor in required:
        rank = len(tensor.shape)
        for i, axis in enumerate(tensor.shape):
            name = axis if isinstance(axis, str) else f"{tensor.name}_{i}"
            if axis != 1 and name not in sizes and not part_of(axis):
                sizes[name] = f"{tensor.name}.shape[{i - rank}]" if isinstance(axis, str) else str(axis)
    for axis in (axis for tensor in required for axis in tensor.shape):
        if part := part_of(axis):
            if part[0] not in sizes:
                raise Unsupported(f"no tensor has the axis {part[0]} that {axis} is a part of", reference.name)
            sizes[identifier(str(axis))] = f"{sizes[part[0]]} // {part[1]}"
    return sizes


def _lower_all(state: Lowering, first: bool) -> list[Output]:
    graph, reference = state.graph, state.reference
    nodes = list(state.traced.graph.nodes)
    given = [tensor for tensor in reference.tensors if tensor.name not in state.traced.absent]
    constants = state.traced.constants
    for node in (node for node in nodes if node.name in constants):
        state.node = next(iter(node.users), node)
        state.terms[node] = _constant(state, constants[node.name])
    placeholders = [node for node in nodes if node.op == "placeholder" and node.name not in constants]
    assert len(placeholders) == len(given), "one placeholder an input"
    for node, tensor in zip(placeholders, given):
        dims = _input_dims(state, node, tensor)
        dtype_of = frozenset({tensor.name}) if tensor.dtype == "float" else frozenset()
        value = graph.input(tensor.name, axes_of(dims), tensor.dtype)
        state.terms[node] = state.locals[tensor.name] = Term(value, dims, dtype_of)
        if first:
            graph.inputs.append(Input(tensor.name, value, dims, tensor.optional))
            graph.names[value] = tensor.name
    returned = next(node for node in nodes if node.op == "output").args[0]
    results = list(returned) if isinstance(returned, tuple | list) else [returned]
    targets = state.source.targets([n for n in nodes if n.op == "call_function" and _is_tensor(n)])
    latest = {name: node for node, name in targets.items()}
    for node in nodes:
        if node.op != "call_function":
            continue
        state.node = node
        state.terms[node] = _lower_node(state, node, node in results)
        if node in targets and isinstance(state.terms[node], Term):
            state.locals[targets[node]] = state.terms[node]
            if first and latest[targets[node]] is node:
                state.name(state.terms[node].value, targets[node])
            graph.lines.setdefault(state.terms[node].value, state.source.describe(node))
    return _outputs(state, results)


def _constant(state: Lowering, tensor: torch.Tensor) -> Term:
    if tensor.numel() != 1:
        raise state.refuse(f"a tensor of {tensor.numel()} numbers", "make it an argument")
    number = tensor.item()
    if isinstance(number, float):  # the tensor has lost digits of the scalar that it was made of
        number = next((tag for tag in state.traced.tags.values() if tensor.new_tensor(tag).item() == number), number)
    return Term(state.number(number), ((),) * tensor.dim())


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _input_dims(state: Lowering, node: Any, tensor: Tensor) -> Dims:
    state.node = node
    dims: list[tuple[str, ...]] = []
    for i, axis in enumerate(tensor.shape):
        if axis == 1:
            dims.append(())
            continue
        name = identifier(axis) if isinstance(axis, str) else f"{tensor.name}_{i}"
        dims.append(state.parts.get(name, (name,)))
    axes = axes_of(tuple(dims))
    if len(set(axes)) != len(axes):
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
        if isinstance(term, Complex):
            raise state.refuse("an output is complex", "return torch.view_as_real of it")
        if node.op == "placeholder":
            if not state.traced.absent:
                raise state.refuse(f"{term.value.attr('name')} is returned unchanged", "leave it to the caller")
            outputs.append(Output(term.value.attr("name"), term.value, term.dims, ()))
            continue
        same = set(axes_of(term.dims)) - term.value.axes if term.value.dtype == "float" and term.value.axes else ()
        if same and term.value.op != "cat":
            raise state.refuse(
                f"an output is the same along {', '.join(sorted(same))}", "leave it to the caller to expand"
            )
        fallback = "y" if len(results) == 1 else f"y{i}"
        given = names[i] if len(names) == len(results) else ""
        name = given or state.graph.names.get(term.value, fallback)
        taken = {tensor.name for tensor in state.reference.tensors}
        if {name, f"d{name}"} & taken or name in WRAPPERS or not given and name in _names_below(state, term.value):
            name = "result" if len(results) == 1 else f"result_{i}"
        dtype = node.meta["val"].dtype
        value = term.value
        cast_down = value.op == "round" and set(value.attr("like")) == term.dtype_of and len(node.users) == 1
        if cast_down:
            value = value.args[0]  # the store rounds
        state.name(value, name)
        if value is not term.value and state.graph.names.get(term.value) == name:
            state.graph.names[value] = state.graph.names.pop(term.value)
        for local in [v for v, own in state.graph.names.items() if own == f"d{name}"]:
            state.graph.names[local] = f"d{name}_value"
        order = [tensor.name for tensor in state.reference.tensors]
        dtype_of = tuple(sorted(term.dtype_of, key=order.index)) if dtype == torch.bfloat16 else ()
        whole = str(dtype).removeprefix("torch.") if term.value.dtype == "int" else "int64"
        outputs.append(Output(name, value, term.dims, dtype_of, cast_down, whole))
    return outputs


def _names_below(state: Lowering, value: Value) -> set[str]:
    """The names of what an output is made of."""
    own = value.args[0] if value.op == "round" else value
    made_of = state.graph.walk([value])
    return {state.graph.names[part] for part in made_of if part in state.graph.names and part not in (value, own)}


def _lower_node(state: Lowering, node: Any, is_result: bool) -> Any:
    target = str(node.target)
    if target.startswith("<function "):
        target = node.target.__name__
    if target.startswith("aten._assert") or target.startswith("aten.sym_constrain"):
        return None
    pair = lower_complex(state, node, target)
    if pair is not None:
        return pair
    if target not in ROWS:
        raise state.refuse("the compiler has no row for it", "see `liger-dev list --ops` for what it can express")
    try:
        result = ROWS[target](state, *node.args, **node.kwargs)
    except Unsupported as refusal:
        if refusal.where.startswith("node "):
            raise
        raise state.refuse(refusal.what, refusal.todo) from refusal
    if isinstance(result, Term) and is_result and len(node.users) > 1 and result.dtype_of:
        # An output that is used further is used as it is stored, so that backward, which loads it, sees the same.
        result = Term(rounded(state, result.value, result.dtype_of), result.dims, result.dtype_of)
    return result
