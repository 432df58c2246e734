"""Values in, the launch that computes each out: what an earlier launch must have stored before a later one can go on.

A kernel holds rows and reduces along its columns. A value that reduces along other axes, or varies over more axes than
a reduction below it went over, belongs to a later launch, which loads the reduced value instead of computing it again.
"""

from collections.abc import Collection
from collections.abc import Iterable
from dataclasses import dataclass

from liger_dev.compiler.ir import Axes
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.ir import Value
from liger_dev.compiler.layout import REDUCTIONS
from liger_dev.compiler.layout import along

_NONE: Axes = frozenset()


@dataclass(frozen=True)
class Staging:
    """`launches`: for each value the number of the launch that can compute it, from 0. `kept`: what a launch stores
    for later ones. `totals`: the sums that the wrapper takes between launches."""

    launches: dict[Value, int]
    kept: tuple[Value, ...]
    totals: frozenset[Value]

    @property
    def last(self) -> int:
        return max(self.launches.values(), default=0)


@dataclass(frozen=True)
class _Kernel:
    """The kernel that computes a value: its launch, its columns if it has reduced, and all axes it goes over."""

    launch: int
    cols: Axes
    axes: Axes


def stage(
    graph: Graph,
    roots: Iterable[Value],
    loads: Collection[Value],
    totals: frozenset[Value],
    saved: Collection[Value] = (),
) -> Staging:
    """Sorts the values that `roots` need into launches.

    Args:
        loads: values that are in memory before the first launch.
        totals: sums that the wrapper takes between launches, of rows that a launch has stored.
        saved: values that a launch stores anyway.
    """
    values = graph.walk(roots, loads)
    kernels: dict[Value, _Kernel] = {}
    for value in values:
        if value in loads or not value.args:
            kernels[value] = _Kernel(0, _NONE, value.axes)
        elif value in totals:
            kernels[value] = _Kernel(kernels[value.args[0]].launch + 1, _NONE, _NONE)
        else:
            kernels[value] = _kernel_of(value, kernels)
    store = _Stored({*loads, *totals}, frozenset(saved), kernels)
    kept: dict[Value, None] = {}
    for value in values:
        if value not in loads and value not in totals:
            for arg in value.args:
                if kernels[arg].launch < kernels[value].launch:
                    kept.update(dict.fromkeys(store.below(arg)))
    return Staging({v: k.launch for v, k in kernels.items()}, tuple(v for v in values if v in kept), totals)


def _kernel_of(value: Value, kernels: dict[Value, _Kernel]) -> _Kernel:
    last = max(kernels[arg].launch for arg in value.args)
    here = [kernels[arg] for arg in value.args if kernels[arg].launch == last]
    axes: Axes = frozenset().union(*(k.axes for k in here), *(arg.axes for arg in value.args))
    own = along(value)
    reducing = [k for k in here if k.cols]
    cols = {k.cols for k in reducing} | ({own} if own else set())
    wider = bool(reducing) and not any(axes <= k.axes for k in reducing)
    if wider or len(cols) > 1:
        return _Kernel(last + 1, own, frozenset().union(*(arg.axes for arg in value.args)))
    return _Kernel(last, next(iter(cols), _NONE), axes)


@dataclass(frozen=True)
class _Stored:
    """What an earlier launch stores so that a later one can compute a value."""

    loads: Collection[Value]
    saved: Collection[Value]
    kernels: dict[Value, _Kernel]

    def below(self, value: Value) -> list[Value]:
        if value in self.loads or not value.args:
            return []
        kernel = self.kernels[value]
        reduced = bool(kernel.cols) and not kernel.cols <= value.axes
        if reduced or value in self.saved or (along(value) and value.op not in REDUCTIONS):
            return [value]
        return [v for arg in value.args for v in self.below(arg)]
