"""A graph and tensors in, float64 results out: the oracle that the forward graph and the gradients are checked with."""

import math

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from liger_dev.compiler.ir import Dims
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Slice
from liger_dev.compiler.ir import Slices
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import read_axes
from liger_dev.compiler.ops import OPS
from liger_dev.compiler.ops import fixed


def evaluate(
    graph: Graph,
    roots: Iterable[Value],
    tensors: dict[Value, torch.Tensor],
    scalars: dict[str, Any],
    sizes: dict[str, int],
) -> list[torch.Tensor]:
    """Each root as a float64 tensor with one dimension an axis of `sizes`, in that order (size 1 where it lacks it).

    Args:
        tensors: for each leaf, its tensor laid out in the same way.
    """
    roots = list(roots)
    order = list(sizes)
    results: dict[Value, torch.Tensor] = {}
    for value in graph.walk(roots):
        results[value] = _one(value, [results[arg] for arg in value.args], tensors, scalars, sizes, order)
    return [results[root] for root in roots]


def _one(
    value: Value,
    args: list[torch.Tensor],
    tensors: dict[Value, torch.Tensor],
    scalars: dict[str, Any],
    sizes: dict[str, int],
    order: list[str],
) -> torch.Tensor:
    match value.op:
        case "input":
            tensor = tensors[value]
            return tensor.double() if value.dtype == "float" else tensor
        case "const":
            return _scalar(value.attr("value"), order)
        case "param":
            return _scalar(float(scalars[value.attr("name")]), order)
        case "size":
            number = 1
            for axis in value.attr("over"):
                number *= sizes[axis]
            return _scalar(float(number), order)
        case "index":
            shape = [sizes[axis] if axis == value.attr("axis") else 1 for axis in order]
            return torch.arange(sizes[value.attr("axis")]).reshape(shape)
        case "position":
            own = value.attr("order")
            count = torch.arange(math.prod(sizes[axis] for axis in own)).reshape([sizes[axis] for axis in own])
            present = [axis for axis in order if axis in own]
            count = count.permute([own.index(axis) for axis in present])
            return count.reshape([sizes[axis] if axis in own else 1 for axis in order])
        case "add" | "sub" | "mul" if value.dtype == "int":  # bits of hashes are lost in float64
            return OPS[value.op].evaluate(*(arg.long() for arg in args))  # type: ignore[misc, no-any-return]
        case "div":
            return args[0].double() / args[1]
        case "sum" | "max" | "logsumexp":
            dims = [order.index(axis) for axis in value.attr("over")]
            reduce: dict[str, Callable[..., torch.Tensor]] = {
                "sum": torch.sum,
                "max": torch.amax,
                "logsumexp": torch.logsumexp,
            }
            return reduce[value.op](args[0], dim=dims, keepdim=True)
        case "argmax":
            (axis,) = value.attr("over")
            return args[0].argmax(order.index(axis), keepdim=True)
        case "sort":
            dim = order.index(value.attr("axis"))
            return args[0].sort(dim, descending=True).values
        case "kth_largest":
            (axis,) = value.attr("over")
            return (
                args[0]
                .sort(order.index(axis), descending=True)
                .values.narrow(order.index(axis), value.attr("k") - 1, 1)
            )
        case "simplex_threshold":
            (axis,) = value.attr("over")
            return _simplex_threshold(args[0], order.index(axis), value.attr("total"))
        case "softmax" | "log_softmax":
            dims = [order.index(axis) for axis in value.attr("over")]
            shifted = args[0] - torch.logsumexp(args[0], dim=dims, keepdim=True)
            return shifted if value.op == "log_softmax" else shifted.exp()
        case "round" | "detach":
            return args[0]
        case "cumsum" | "cumprod":
            dim, scan = order.index(value.attr("axis")), getattr(torch, value.op)
            whole = args[0].expand([n if i == dim else -1 for i, n in enumerate(sizes.values())])
            found = scan(whole.flip(dim), dim).flip(dim) if value.attr("reverse") else scan(whole, dim)
            return found  # type: ignore[no-any-return]
        case "fixed":
            return fixed(args[0], value.attr("to"))
        case _:
            function = OPS[value.op].evaluate
            assert function is not None, f"{value.op} can't be evaluated"
            return function(*args)  # type: ignore[no-any-return]


def _simplex_threshold(x: torch.Tensor, dim: int, total: float) -> torch.Tensor:
    ordered = x.sort(dim, descending=True).values
    rank = torch.arange(1, x.shape[dim] + 1).reshape([-1 if i == dim else 1 for i in range(x.dim())])
    thresholds = (ordered.cumsum(dim) - total) / rank
    kept = (ordered > thresholds).sum(dim, keepdim=True)
    return thresholds.gather(dim, (kept - 1).clamp(min=0))


def _scalar(number: Any, order: list[str]) -> torch.Tensor:
    kind = torch.bool if isinstance(number, bool) else torch.float64
    return torch.full([1] * len(order), number, dtype=kind)


def laid_out(
    tensor: torch.Tensor,
    dims: Dims,
    slices: Slices,
    sizes: dict[str, int],
    indices: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> torch.Tensor:
    """A tensor, or a slice of it, as `evaluate` wants it: one dimension an axis of `sizes`, in that order. `indices` are
    the tensors that slices count by, by name."""
    cut = dict(slices)
    for i, piece in cut.items():
        if piece.reversed:
            tensor = tensor.flip(i)
            continue
        if piece.at:
            tensor = tensor.index_select(i, indices[piece.at].reshape(-1))
            continue
        if piece.outside:
            tensor = _with_outside(tensor, i, piece, sizes)
            continue
        start = piece.first + sum(sizes[axis] for axis in piece.after)
        count = math.prod(sizes[axis] for axis in piece.axes)
        if start < 0:
            start += tensor.shape[i]
        tensor = tensor.narrow(i, start, tensor.shape[i] - start)[(slice(None),) * i + (slice(None, None, piece.step),)]
        tensor = tensor.narrow(i, 0, count)
    source = read_axes(dims, slices)
    plain = tensor.reshape([sizes[axis] for axis in source])
    present = [axis for axis in sizes if axis in source]
    return plain.permute([source.index(axis) for axis in present]).reshape(
        [n if axis in source else 1 for axis, n in sizes.items()]
    )


def _with_outside(tensor: torch.Tensor, dim: int, piece: Slice, sizes: dict[str, int]) -> torch.Tensor:
    """A read that leaves the dimension: zeros there, or the dimension once more."""
    n = tensor.shape[dim]
    positions = torch.arange(sizes[piece.axes[0]]) + piece.first
    if piece.outside == "wrap":
        return tensor.index_select(dim, positions % n)
    found = tensor.index_select(dim, positions.clamp(0, n - 1))
    inside = (positions >= 0) & (positions < n)
    return torch.where(inside.reshape([-1 if i == dim else 1 for i in range(tensor.dim())]), found, 0)
