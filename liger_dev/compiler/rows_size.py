"""Rows of sizes: how long a dimension is, arithmetic on that, and the ranges that count one."""

from collections.abc import Callable
from typing import Any

import torch

from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.ir import axes_of
from liger_dev.compiler.lowering import Lowering
from liger_dev.compiler.lowering import Row
from liger_dev.compiler.lowering import Term
from liger_dev.compiler.lowering import as_float
from liger_dev.compiler.lowering import hint


def _sym_size(state: Lowering, x: Any, dim: int) -> Value:
    return state.graph.size(state.term(x).dims[dim])


def _number_row(make: Callable[[Graph, Value, Value], Value]) -> Row:
    """Arithmetic on sizes."""

    def row(state: Lowering, a: Any, b: Any) -> Value:
        return make(state.graph, state.term(a).value, state.term(b).value)

    return row


def _product_of_sizes(g: Graph, a: Value, b: Value) -> Value:
    """The number of elements over the axes of both, where both are sizes."""
    if a.op == b.op == "size" and not {*a.attr("over")} & {*b.attr("over")}:
        return g.size((*a.attr("over"), *b.attr("over")))
    return g.mul(a, b)


def _size_root(state: Lowering, size: Any) -> Value:
    return state.graph.make("sqrt", as_float(state.graph, state.term(size).value))


def _size_power(state: Lowering, size: Any, exponent: Any) -> Value:
    """A power of a size: `x.shape[-1] ** 0.5`."""
    g, value = state.graph, as_float(state.graph, state.term(size).value)
    if exponent in (0.5, -0.5):
        return g.make("sqrt" if exponent > 0 else "rsqrt", value)
    if isinstance(exponent, int) and abs(exponent) <= 4:
        return g.power(value, exponent)
    return g.make("pow", value, as_float(g, state.term(exponent).value))


def _counted_part(state: Lowering, size: int, args: tuple[Any, ...]) -> tuple[str, ...]:
    """The part of an axis that `torch.arange(0, n, 2)` or `torch.arange(n // 2)` counts, for the axis's size n."""
    end = args[1] if len(args) > 1 else args[0]
    if isinstance(end, torch.fx.Node) and str(end.target) == "<built-in function floordiv>":
        end = end.args[0]
    whole = hint(end.meta["val"]) if isinstance(end, torch.fx.Node) else 0
    axis = next((axis for axis, extent in state.hints.items() if extent == whole), "")
    return (state.part_axis(axis, size),) if axis and whole % size == 0 else state.axis_of_size(size)


def _arange(state: Lowering, *args: Any, **kwargs: Any) -> Term:
    """Indices of an axis: `torch.arange(x.shape[-1])`, or others in equal steps, `torch.arange(1, x.shape[-1] + 1)`."""
    (size,) = state.shape(state.node)
    if isinstance(args[0], torch.fx.Node) and str(args[0].target) == "aten.sym_numel.default":
        order = axes_of(state.term(args[0].args[0]).dims)
        return Term(state.graph.make("position", axes=frozenset(order), dtype="int", order=order), (order,))
    dim = state.axis_of_size(size) if size in state.hints.values() else _counted_part(state, size, args)
    start, step = args[0] if len(args) > 1 else 0, args[2] if len(args) > 2 else 1
    if not dim or not isinstance(start, int) or not isinstance(step, int):
        raise state.refuse("a range that does not count an axis from a number")
    g = state.graph
    index = g.make("index", axes=frozenset(dim), dtype="int", axis=dim[0])
    value = g.add(g.mul(index, g.const(step)), g.const(start))
    if state.node.meta["val"].dtype.is_floating_point:
        value = state.graph.make("float", value)
    return Term(value, (dim,))


SIZES: dict[str, Row] = {
    "sym_float": lambda state, size: state.term(size).value,
    "_sym_sqrt": _size_root,
    "<built-in function pow>": _size_power,
    "<built-in function mul>": _number_row(_product_of_sizes),
    "<built-in function add>": _number_row(Graph.add),
    "<built-in function sub>": _number_row(Graph.sub),
    "<built-in function floordiv>": _number_row(Graph.div),
    "<built-in function truediv>": _number_row(Graph.div),
    "aten.arange.default": _arange,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "aten.sym_size.int": _sym_size,
    "aten.sym_numel.default": lambda state, x: state.graph.size(axes_of(state.term(x).dims)),
}
