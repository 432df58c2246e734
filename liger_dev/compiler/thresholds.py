"""A graph with sorted rows in, the same graph without: a number that was read off a sorted row is found without sorting.

A row of numbers can be sorted, added up and compared in many ways that mean the same. So it is what comes out that is
recognised, at random rows: the k-th largest element, or the threshold above which a row exceeds it by a fixed sum, which
is what sparsemax subtracts.
"""

from dataclasses import replace

import torch

from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Output
from liger_dev.compiler.ir import Value
from liger_dev.compiler.optional import substitute
from liger_dev.errors import Unsupported

_LENGTHS, _ROWS = (23, 31), 5
_SCALES = (0.1, 1.0, 3.0)
# More passes over a row than this are no way to find an element.
_LARGEST_K = 16


class StillSorted(Unsupported):
    """A row would have to be sorted, unless its largest elements are searched one by one."""


def find_thresholds(graph: Graph, outputs: list[Output]) -> list[Output]:
    """The outputs, with what they read off sorted rows replaced.

    Raises:
        StillSorted: it is none of these numbers.
    """
    done: dict[Value, Value] = {}
    found = [replace(o, value=_found(graph, o.value, done)) for o in outputs]
    for old, new in done.items():
        if old is not new and old in graph.names:
            graph.names.setdefault(new, graph.names.pop(old))
    for value in graph.walk(o.value for o in found):
        if value.op == "sort":
            raise StillSorted("a sorted row is used for more than a threshold", graph.line_of(value))
    return found


def _found(graph: Graph, value: Value, done: dict[Value, Value]) -> Value:
    if value not in done:
        order = [v for v in graph.walk([value]) if v.op == "sort"]
        if not order:
            done[value] = value
        elif value.dtype == "float" and not any(v.attr("axis") in value.axes for v in order):
            done[value] = _recognised(graph, value, order[-1]) or _rebuilt(graph, value, done)
        else:
            done[value] = _rebuilt(graph, value, done)
    return done[value]


def _rebuilt(graph: Graph, value: Value, done: dict[Value, Value]) -> Value:
    args = tuple(_found(graph, arg, done) for arg in value.args)
    return value if args == value.args else graph.rebuild(value, args)


def _recognised(graph: Graph, value: Value, order: Value) -> Value | None:
    """The operation that gives `value`, a number of each row that was sorted as `order`."""
    row, axis = order.args[0], order.attr("axis")
    free = graph.make("input", axes=row.axes, dtype="float", name="any_row", slices=())
    total = substitute(graph, value, row, free)
    if any(v.op in ("input", "param") and v is not free for v in graph.walk([total])):
        return None
    (rank, above), (other_rank, other_above) = (_meaning(graph, total, free, axis, length) for length in _LENGTHS)
    if rank and rank == other_rank:
        return _kth(graph, value, row, axis, rank)
    if rank and other_rank and _LENGTHS[0] - rank == _LENGTHS[1] - other_rank:
        return graph.neg(_kth(graph, value, graph.neg(row), axis, _LENGTHS[0] - rank + 1))
    if above and above == other_above:
        return graph.make("simplex_threshold", row, over=(axis,), total=above)
    return None


def _meaning(graph: Graph, total: Value, free: Value, axis: str, length: int) -> tuple[int, float]:
    """Of a number of random rows: how many elements reach it, if it is one of them, and by how much the rest exceeds it
    in all; 0 if that is not the same for all rows."""
    values = graph.walk([total])
    axes = sorted(frozenset().union(*(v.axes | set(v.attr("over") if v.op == "size" else ()) for v in values)))
    fixed = {a: int(text) for a in axes if (text := graph.sizes.get(a, "")).isdigit()}
    sizes = {a: length if a == axis else fixed.get(a, _ROWS) for a in axes}
    generator = torch.Generator().manual_seed(23)
    shape = [n if a in free.axes else 1 for a, n in sizes.items()]
    rows = torch.stack([s * torch.randn(shape, generator=generator, dtype=torch.float64) for s in _SCALES])
    numbers = torch.stack([evaluate(graph, [total], {free: one}, {}, sizes)[0] for one in rows])
    dim = 1 + axes.index(axis)
    rank, is_one = (rows >= numbers).sum(dim), (rows == numbers).any(dim)
    above = (rows - numbers).clamp(min=0).sum(dim)
    same = bool((is_one & (rank == rank.flatten()[0])).all())
    even = bool(((above - above.flatten()[0]).abs() < 1e-9).all())
    return int(rank.flatten()[0]) if same else 0, round(float(above.flatten()[0]), 9) if even else 0.0


def _kth(graph: Graph, value: Value, row: Value, axis: str, k: int) -> Value:
    if k > _LARGEST_K:
        raise Unsupported(f"the {k}-th largest element of a row", graph.line_of(value), "take one near an end")
    return graph.make("kth_largest", row, over=(axis,), k=k)
