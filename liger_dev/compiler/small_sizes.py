"""A reference in, how many elements of each axis it needs at least out: found by calling it with none and with one."""

import warnings

from collections.abc import Callable
from typing import Any

import torch

from liger_dev.compiler.demands import least_sizes
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.trace import axis_sizes
from liger_dev.compiler.trace import sample
from liger_dev.compiler.trace import tag
from liger_dev.records import Reference


def least_taken(fn: Callable[..., Any], reference: Reference, graph: Graph) -> dict[str, int]:
    """For each axis that can't be empty, or can't have one element, the least size without an error or a warning."""
    found = least_sizes(graph)
    sizes = {axis: graph.extents[axis] for axis in axis_sizes(reference)}
    for axis in sizes:
        start = found.get(axis, 0)
        least = next((size for size in range(start, 3) if _takes(fn, reference, {**sizes, axis: size})), start)
        if least:
            found[axis] = least
    return found


def _takes(fn: Callable[..., Any], reference: Reference, sizes: dict[str, int]) -> bool:
    scalars = {scalar.name: tag(scalar, i, False) for i, scalar in enumerate(reference.scalars)}
    tensors = {t.name: sample(t.shape, t.dtype, sizes) for t in reference.tensors}
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            fn(**tensors, **scalars)
    except (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError, UserWarning):
        return False
    finally:
        torch.set_warn_always(always)
    return True
