"""Rows of tensors that hold one number: zeros, ones, full, and their relatives."""

from typing import Any

import torch

from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import hint


def filled(state: Lowering, number: Any) -> Term:
    """A tensor of the node's shape and dtype that holds `number` everywhere."""
    dtype = state.node.meta["val"].dtype
    kind = bool if dtype == torch.bool else float if dtype.is_floating_point else int
    sizes = state.node.meta["val"].shape
    dims = tuple(_static(state, size) if isinstance(size, int) else state.axis_of_size(hint(size)) for size in sizes)
    if isinstance(number, torch.fx.Node):  # made of a size
        value = state.term(number).value
        return Term(as_float(state.graph, value) if kind is float else value, dims)
    return Term(state.number(kind(number)), dims)


def _static(state: Lowering, size: int) -> tuple[str, ...]:
    """The dimension of a size that the reference writes as a number."""
    return () if size == 1 else (state.new_axis(f"of_{size}", size, str(size)),)


def _of(number: float) -> Row:
    return lambda state, *_, **__: filled(state, number)


def _full(state: Lowering, shape: Any, number: Any, *_: Any, **__: Any) -> Term:
    return filled(state, number)


CONSTANTS: dict[str, Row] = {
    **{f"aten.{name}.default": _of(0) for name in ("zeros", "zeros_like", "new_zeros")},
    # What is left of one without values after it is filled; a reference that shows more of it is no function.
    **{f"aten.{name}": _of(0) for name in ("empty.memory_format", "empty_like.default", "new_empty.default")},
    **{f"aten.{name}.default": _of(1) for name in ("ones", "ones_like", "new_ones")},
    **{f"aten.{name}.default": _full for name in ("full", "full_like", "new_full")},
    "aten.scalar_tensor.default": lambda state, number, **_: filled(state, number),
}
