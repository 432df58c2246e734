"""A maximum and its gradient in, whether it is a mere shift out: `exp(x - max) / sum(exp(x - max))` is the same for any
number in the place of the maximum, so no gradient flows through it.

The maximum is replaced by a free variable. The gradient with respect to it is a combination of analytic functions of
that variable and the inputs, on each side of a `where`; it is zero everywhere if it is zero, to the last digits, at
random points: sums that don't cancel are of the size of their terms.
"""

import torch

from liger_dev.compiler.evaluate import evaluate
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.optional import substitute

_SIZES = (5, 3, 7, 4, 6, 8, 9, 10, 11, 12, 13, 14)
_POINTS = 3
_CANCELS = 1e-11


def is_shift(graph: Graph, peak: Value, gradient: Value) -> bool:
    """Whether `gradient`, which reaches the maximum `peak`, is zero whatever number stands for `peak`."""
    free = graph.make("input", axes=peak.axes, dtype="float", name="any_shift", slices=())
    total = substitute(graph, gradient, peak, free)
    terms = _terms(graph, total)
    if len(terms) < 2 and total.op != "sum":
        return False
    leaves = [v for v in graph.walk([total, *terms]) if v.op in ("input", "param")]
    axes = sorted(frozenset().union(*(v.axes for v in graph.walk([total, *terms]))))
    sizes = dict(zip(axes, _SIZES))
    generator = torch.Generator().manual_seed(17)
    for _ in range(_POINTS):
        tensors = {v: _drawn(v, sizes, generator) for v in leaves if v.op == "input"}
        scalars = {v.attr("name"): float(torch.rand((), generator=generator)) + 0.5 for v in leaves if v.op == "param"}
        found, *parts = evaluate(graph, [total, *terms], tensors, scalars, sizes)
        scale = torch.stack([part.abs().sum() for part in parts]).sum()
        if not bool(found.abs().max() <= _CANCELS * scale):
            return False
    return True


def _terms(graph: Graph, value: Value) -> list[Value]:
    """The terms that a value is a sum of; of a sum over axes, its operand's."""
    match value.op:
        case "add" | "sub":
            return [*_terms(graph, value.args[0]), *_terms(graph, value.args[1])]
        case "neg" | "sum":
            return _terms(graph, value.args[0])
    return [value]


def _drawn(leaf: Value, sizes: dict[str, int], generator: torch.Generator) -> torch.Tensor:
    shape = [n if axis in leaf.axes else 1 for axis, n in sizes.items()]
    if leaf.dtype == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    if leaf.dtype == "int":
        return torch.randint(0, 2, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
