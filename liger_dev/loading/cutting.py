"""A module with linear layers in, the operation between them out: the largest parts of its graph without a product."""

import functools

from dataclasses import dataclass
from dataclasses import replace
from typing import Any

import torch

from torch.fx import Graph
from torch.fx import GraphModule
from torch.fx import Interpreter
from torch.fx import Node

from liger_dev.errors import BadInput
from liger_dev.loading.cut_names import input_names
from liger_dev.loading.cut_names import layer_name
from liger_dev.loading.cut_names import part_shapes
from liger_dev.loading.operation import Bound
from liger_dev.loading.operation import Operation
from liger_dev.loading.operation import Place
from liger_dev.loading.probe import give_shapes
from liger_dev.loading.usual_shapes import Shape
from liger_dev.records import Tensor
from liger_dev.torch_text import Traced
from liger_dev.torch_text import op_name
from liger_dev.traced_names import assigned_names

_PRODUCTS = frozenset(
    "linear matmul mm bmm addmm baddbmm einsum bilinear conv1d conv2d conv3d convolution conv_transpose1d "
    "conv_transpose2d conv_transpose3d embedding scaled_dot_product_attention".split()
)
_LAYOUT = frozenset(
    "view reshape transpose permute t unsqueeze squeeze expand contiguous clone chunk split split_with_sizes unbind "
    "getitem flatten unflatten alias".split()
)
# Alone, these are no operation that anyone would want a kernel for.
_DULL = _LAYOUT | frozenset("to _to_copy type_as dropout slice select cat detach".split())


@dataclass(frozen=True)
class Part:
    """Nodes of a graph, in order, with the values that they take from outside and those that are used outside."""

    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]


def holds_layers(module: torch.nn.Module) -> bool:
    """Whether a module holds layers that multiply matrices, look rows up, or convolve; one that is a table holds none."""
    if isinstance(module, torch.nn.Embedding):
        return False
    layers = (torch.nn.Linear, torch.nn.Bilinear, torch.nn.Embedding, torch.nn.modules.conv._ConvNd)
    return any(isinstance(inner, layers) or type(inner).__name__ == "Conv1D" for inner in module.modules())


def cut(whole: Operation, traced: Traced, part: int, shapes: dict[str, Shape]) -> Operation:
    """The operation between the linear layers of a module, with the tensors at its edges as arguments.

    Args:
        whole: the module's forward, its parameters among its tensors.
        traced: its graph, with sizes symbolic where they may vary.
        part: which one, counted from 1; 0 if there is only one.
        shapes: of the part's tensors, as the user gave them.

    Raises:
        BadInput: there is no such part, or several; the message lists them.
    """
    parameters = frozenset(tensor.name for tensor in whole.tensors if tensor.init)
    parts = [_data_first(found, traced, parameters) for found in find_parts(traced.graph)]
    chosen = _chosen(parts, part, traced, parameters, whole.place)
    names = input_names(chosen.inputs, traced, parameters)
    graph, copies = _graph(chosen, names, whole.place)
    known = {tensor.name: tensor for tensor in whole.tensors}
    own = [known.get(traced.arguments.get(node.name, "")) for node in chosen.inputs]
    axes, sizes = part_shapes(chosen.inputs, traced, whole.tensors)
    tensors = tuple(
        replace(tensor, name=name) if tensor is not None else Tensor(name, ())
        for name, tensor in zip(names, own, strict=True)
    )
    assigned = assigned_names(list(traced.graph.nodes))
    told = {copies[node]: name for node, name in assigned.items() if node in chosen.nodes}
    constants = {node.name: traced.constants[node.name] for node in graph.nodes if node.name in traced.constants}
    inside = Traced(graph, dict(zip(names, names)), {}, constants, traced.dtype, told)
    said = [text for text in whole.assumptions if not text.startswith(("shapes were not given", "axes are named"))]
    operation = Operation(
        functools.partial(_bind, GraphModule(torch.nn.Module(), graph), names, traced),
        tensors,
        (),
        whole.place,
        sizes=sizes if _bakes_in(chosen, sizes) else {},
        assumptions=(*said, _said(chosen, names, traced)),
        graph=inside,
    )
    given = {**dict(zip(names, axes)), **shapes}
    shown = ", ".join(f"{name} ({', '.join(map(str, given[name]))})" for name in names if name not in shapes)
    note = (f"shapes are those in the module: {shown}; pass --shape to change",) if shown else ()
    return give_shapes(replace(operation, assumptions=(*operation.assumptions, *note)), given)


def find_parts(graph: Graph) -> list[Part]:
    """Nodes that values or a common input connect, without a product between any two, in the order of their first."""
    tensors = [n for n in graph.nodes if n.op == "call_function" and _is_tensor(n)]
    inner = {node for node in tensors if op_name(node) not in _PRODUCTS}
    _trim(inner, tensors)
    levels = _levels(graph, inner)
    groups: dict[Node, Node] = {node: node for node in inner}

    def root(node: Node) -> Node:
        return node if groups[node] is node else root(groups[node])

    first: dict[tuple[Node, int], Node] = {}
    for node in tensors:
        for operand in _operands(node) if node in inner else ():
            if operand in inner and levels[operand] == levels[node]:
                groups[root(node)] = root(operand)
            elif operand not in inner:
                groups[root(node)] = root(first.setdefault((operand, levels[node]), node))
    members: dict[Node, list[Node]] = {}
    for node in tensors:
        if node in inner:
            members.setdefault(root(node), []).append(node)
    return [_part(nodes) for nodes in members.values() if any(op_name(node) not in _DULL for node in nodes)]


def _trim(inner: set[Node], tensors: list[Node]) -> None:
    """Takes out what only arranges values on their way in or out: an edge is where arithmetic begins or ends."""
    changed = True
    while changed:
        layout = [node for node in tensors if node in inner and op_name(node) in _LAYOUT]
        leading = [node for node in layout if all(_only_arranged(operand, inner) for operand in _operands(node))]
        trailing = [node for node in layout if not any(user in inner for user in node.users)]
        inner -= {*leading, *trailing}
        changed = bool(leading or trailing)


def _only_arranged(value: Node, inner: set[Node]) -> bool:
    return value not in inner and all(op_name(user) in _LAYOUT for user in value.users if user in inner)


def _levels(graph: Graph, inner: set[Node]) -> dict[Node, int]:
    """How many products stand before a node; one that only later nodes use counts as late as they do.

    Two nodes of one level have no product between them, so that a part can be computed in one go.
    """
    levels: dict[Node, int] = {}
    for node in graph.nodes:
        before = max((levels[operand] for operand in node.all_input_nodes), default=0)
        levels[node] = before + (op_name(node) in _PRODUCTS)
    for node in reversed(graph.nodes):
        if node in inner and node.users and all(user in inner for user in node.users):
            levels[node] = min(levels[user] for user in node.users)
    return levels


def _part(nodes: list[Node]) -> Part:
    taken = dict.fromkeys(operand for node in nodes for operand in _operands(node) if operand not in nodes)
    used = [node for node in nodes if any(user not in nodes and _takes_values(user) for user in node.users)]
    return Part(nodes, list(taken), used)


def _data_first(part: Part, traced: Traced, parameters: frozenset[str]) -> Part:
    return replace(part, inputs=sorted(part.inputs, key=lambda node: traced.arguments.get(node.name) in parameters))


def _chosen(parts: list[Part], part: int, traced: Traced, parameters: frozenset[str], place: Place) -> Part:
    if not parts:
        raise BadInput(
            "there is nothing but linear layers in the module",
            place.shown,
            "name a module with an operation of its own",
        )
    if part > len(parts) or (part == 0 and len(parts) > 1):
        told = "; ".join(f"--part {number}: {_told(p, traced, parameters)}" for number, p in enumerate(parts, 1))
        what = f"the module has {len(parts)} part{'s' if len(parts) > 1 else ''} between its linear layers"
        raise BadInput(what, place.shown, f"choose one: {told}")
    return parts[max(part, 1) - 1]


def _told(part: Part, traced: Traced, parameters: frozenset[str]) -> str:
    """`silu, mul of gate, up, into down_proj`."""
    names = input_names(part.inputs, traced, parameters)
    ops = list(dict.fromkeys(op_name(node).strip("_") for node in part.nodes if op_name(node) not in _DULL))
    layers = _fed(part, traced)
    return f"{', '.join(ops)} of {', '.join(names)}" + (f", into {', '.join(layers)}" if layers else "")


def _said(part: Part, names: list[str], traced: Traced) -> str:
    sources = [f"{name} of {layer}" for name, node in zip(names, part.inputs) if (layer := layer_name(node, traced))]
    taken = f"takes {', '.join(sources)}" if sources else f"takes {', '.join(names)}"
    into = _fed(part, traced)
    return f"cut out of a module, whose linear layers stay outside: {taken}" + (
        f"; goes into {', '.join(into)}" if into else ""
    )


def _fed(part: Part, traced: Traced) -> list[str]:
    """The layers that a part's outputs go into, through what only arranges them."""
    found: list[str] = []
    waiting = list(part.outputs)
    for value in waiting:
        for user in value.users:
            if op_name(user) in _PRODUCTS:
                found.append(layer_name(user, traced) or op_name(user))
            elif user not in part.nodes and op_name(user) in _LAYOUT and user not in waiting:
                waiting.append(user)
    return list(dict.fromkeys(found))


def _graph(part: Part, names: list[str], place: Place) -> tuple[Graph, dict[Node, Node]]:
    """A graph of the part alone, with the notes on source lines that its nodes had, and which node is whose copy."""
    graph = Graph()
    known: dict[Node, Node] = {}
    for name, node in zip(names, part.inputs, strict=True):
        known[node] = graph.placeholder(name)
        known[node].meta = {"val": node.meta["val"]}

    def copied(node: Node) -> Node:
        if node not in known:
            known[node] = _size(node, part, known, graph, place) or graph.node_copy(node, copied)
        return known[node]

    for node in part.nodes:
        copied(node)
    graph.output(tuple(known[node] for node in part.outputs))
    return graph, known


def _size(node: Node, part: Part, known: dict[Node, Node], graph: Graph, place: Place) -> Node | None:
    """A size that is read from a tensor outside the part, as the size of one of the part's inputs."""
    if op_name(node) != "sym_size" or node.args[0] in known or node.args[0] in part.nodes:
        return None
    for value in part.inputs:
        for dim, size in enumerate(value.meta["val"].shape):
            if str(size) == str(node.meta["val"]):
                found = graph.call_function(torch.ops.aten.sym_size.int, (known[value], dim))
                found.meta = dict(node.meta)
                return found
    raise BadInput(
        "the part depends on a size that none of its tensors has", place.shown, "write it as a function in a file"
    )


class _Inside(Interpreter):
    """Runs a part in the dtype of its inputs: the graph's casts to the dtype that it was traced in mean that one."""

    def __init__(self, module: GraphModule, traced_in: torch.dtype, dtype: torch.dtype) -> None:
        super().__init__(module)
        self.traced_in, self.dtype = traced_in, dtype

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        def given(value: Any) -> Any:
            return self.dtype if value is self.traced_in else value

        args, kwargs = torch.fx.node.map_aggregate((args, kwargs), given)
        return super().call_function(target, args, kwargs)


def _bind(module: GraphModule, names: list[str], traced: Traced, scalars: dict[str, Any]) -> Bound:
    def bound(tensors: dict[str, torch.Tensor]) -> Any:
        dtype = next(t.dtype for t in tensors.values() if t.is_floating_point())
        result = _Inside(module, traced.dtype, dtype).run(*(tensors[name] for name in names))
        return result[0] if len(result) == 1 else result

    return bound


def _bakes_in(part: Part, sizes: dict[str, int]) -> bool:
    """Whether a size of the module stands in the part as a number: it then holds for that size alone."""
    numbers: set[float] = set()

    def seen(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers.update((value, 1 / value if value else 0.0))
        return value

    for node in part.nodes:
        torch.fx.node.map_aggregate((node.args, node.kwargs), seen)
    return any(size in numbers for size in sizes.values() if size > 4)


def _takes_values(user: Node) -> bool:
    """Not so an assertion, and what asks for a size alone."""
    return op_name(user) != "sym_size" and "_assert" not in str(user.target)


def _operands(node: Node) -> list[Node]:
    return [operand for operand in node.all_input_nodes if _is_tensor(operand)]


def _is_tensor(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) or (
        isinstance(value, tuple | list) and any(isinstance(item, torch.Tensor) for item in value)
    )
