"""The edges of a part of a module's graph in, names and shapes for them out: those of the layers that they come from."""

import builtins
import keyword
import re

from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from liger_dev.loading.usual_shapes import Shape
from liger_dev.records import Tensor
from liger_dev.torch_text import Traced
from liger_dev.torch_text import op_name
from liger_dev.traced_names import assigned_names

_ENDING = re.compile(r"(_proj|_projection|_linear|_layer|_states|_fc|_lin)\Z")
_WEIGHTED = frozenset("linear addmm conv1d conv2d conv3d embedding matmul mm".split())
_THROUGH = frozenset("view reshape transpose permute t unsqueeze squeeze contiguous clone flatten unflatten".split())
_AXES = "NKMPQRS"


def layer_name(node: Node, traced: Traced) -> str:
    """`gate_proj`, where a value is what a layer of that name gives, rearranged or not; "" for other values."""
    while op_name(node) in _THROUGH and isinstance(node.args[0], Node):
        node = node.args[0]
    if op_name(node) not in _WEIGHTED:
        return ""
    for operand in node.all_input_nodes:
        while op_name(operand) in _THROUGH and isinstance(operand.args[0], Node):
            operand = operand.args[0]
        name = traced.arguments.get(operand.name, "")
        if operand.op == "placeholder" and name.endswith("_weight"):
            return name.removesuffix("_weight")
    return ""


def input_names(inputs: Sequence[Node], traced: Traced, parameters: frozenset[str]) -> list[str]:
    """A name for each input: of its layer without `_proj`, of a variable in the source, or of the module's argument."""
    assigned = assigned_names(list(traced.graph.nodes))
    data = [node for node in inputs if traced.arguments.get(node.name) not in parameters]
    names: list[str] = []
    for node in inputs:
        alone = len(data) == 1 and node is data[0] and node.op != "placeholder"
        wanted = "x" if alone else _wanted(node, traced, assigned)
        tries = [wanted, *(f"{wanted}_{number}" for number in range(2, len(inputs) + 2))]
        names.append(next(name for name in tries if name not in names))
    return names


def _wanted(node: Node, traced: Traced, assigned: dict[Node, str]) -> str:
    if node.op == "placeholder":
        return traced.arguments.get(node.name, node.name)
    name = _ENDING.sub("", layer_name(node, traced) or assigned.get(node, ""))
    return name if name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name) else "x"


def part_shapes(
    inputs: Sequence[Node], traced: Traced, tensors: Sequence[Tensor]
) -> tuple[list[Shape], dict[str, int]]:
    """Axes for each input, and the size of each axis in the module.

    A dimension has the axis of the module's tensor with the same symbolic size; other dimensions get new ones.
    """
    known: dict[str, str] = {}
    sizes: dict[str, int] = {}
    by_name = {tensor.name: tensor for tensor in tensors}
    for node in traced.graph.nodes:
        tensor = by_name.get(traced.arguments.get(node.name, "")) if node.op == "placeholder" else None
        for size, axis in zip(node.meta["val"].shape, tensor.shape) if tensor is not None else ():
            if isinstance(axis, str):
                known.setdefault(str(size), axis)
    shapes = [_shape(node, known, sizes) for node in inputs]
    used = {axis for shape in shapes for axis in shape}
    last = next((shape[-1] for shape in shapes if shape), "H")
    if "H" not in used and isinstance(last, str) and last not in "BT":
        # the width of what is cut out is its own, whatever it was called in the module
        shapes = [tuple("H" if axis == last else axis for axis in shape) for shape in shapes]
        sizes = {"H" if axis == last else axis: size for axis, size in sizes.items()}
    return shapes, {axis: size for axis, size in sizes.items() if axis not in ("B", "T")}


def _shape(node: Node, known: dict[str, str], sizes: dict[str, int]) -> Shape:
    axes: list[str | int] = []
    for size in node.meta["val"].shape:
        if str(size) == "1":
            axes.append(1)
            continue
        # the halves of a chunk of odd or even width are different terms of one size
        key = str(size) if str(size) in known else str(_hint(size))
        if key not in known:
            known[key] = next(axis for axis in _AXES if axis not in known.values())
        axis = known[key]
        sizes[axis] = _hint(size)
        axes.append(axis)
    return tuple(axes)


def _hint(size: Any) -> int:
    return int(size) if isinstance(size, int) else int(size.node.hint)
