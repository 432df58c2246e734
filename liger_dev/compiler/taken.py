"""A reference in, what eager PyTorch takes it with out, found by calling it: how many elements of each axis at least, and
which dtypes."""

import contextlib
import warnings

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from liger_dev.compiler.demands import least_sizes
from liger_dev.compiler.ir import Graph
from liger_dev.compiler.trace import axis_sizes
from liger_dev.compiler.trace import sample
from liger_dev.compiler.trace import tag
from liger_dev.records import Reference

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError)


def least_taken(fn: Callable[..., Any], reference: Reference, graph: Graph) -> dict[str, int]:
    """For each axis that can't be empty, or can't have one element, the least size without an error or a warning."""
    found = least_sizes(graph)
    sizes = {axis: graph.extents[axis] for axis in axis_sizes(reference)}
    dtype = torch.bfloat16 if _runs(fn, reference, sizes, torch.bfloat16) else torch.float32
    for axis in sizes:
        start = found.get(axis, 0)
        least = next((size for size in range(start, 3) if _takes(fn, reference, {**sizes, axis: size}, dtype)), start)
        if least:
            found[axis] = least
    return found


def dtypes_taken(fn: Callable[..., Any], reference: Reference, sizes: Mapping[str, int]) -> list[str]:
    """The names of the dtypes of floating inputs that forward and backward run with; float32 is always one."""
    return ["float32", *(name for name in ("bfloat16", "float16") if _runs(fn, reference, sizes, _DTYPES[name]))]


def settle_dtypes(fn: Callable[..., Any], reference: Reference, graph: Graph) -> None:
    """Outputs keep those of their `dtype_of` that widen eager's result: `y += x` has y's dtype, which no trace shows."""
    floats = [tensor.name for tensor in reference.tensors if tensor.dtype == "float"]
    if all(len(output.dtype_of) < 2 for output in graph.outputs):
        return
    narrow: dict[str, list[torch.dtype]] = {}
    for name in floats:
        with contextlib.suppress(*_REFUSALS), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = _call(fn, reference, graph.extents, torch.bfloat16, wide=name)
            narrow[name] = [result.dtype for result in results]
    for i, output in enumerate(graph.outputs):
        kept = tuple(n for n in output.dtype_of if narrow.get(n, [None] * (i + 1))[i] != torch.bfloat16)
        if kept:
            graph.outputs[i] = replace(output, dtype_of=kept)


def _takes(fn: Callable[..., Any], reference: Reference, sizes: Mapping[str, int], dtype: torch.dtype) -> bool:
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            _call(fn, reference, sizes, dtype)
    except (*_REFUSALS, UserWarning):
        return False
    finally:
        torch.set_warn_always(always)
    return True


def _runs(fn: Callable[..., Any], reference: Reference, sizes: Mapping[str, int], dtype: torch.dtype) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = _call(fn, reference, sizes, dtype, needs_gradient=True)
            ends = [y for y in outputs if isinstance(y, torch.Tensor) and y.requires_grad]
            if ends:
                torch.autograd.backward(ends, [torch.ones_like(y) for y in ends])
    except _REFUSALS:
        return False
    return True


def _call(
    fn: Callable[..., Any],
    reference: Reference,
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    needs_gradient: bool = False,
    wide: str = "",
) -> tuple[Any, ...]:
    """The results for inputs of one dtype, but for the one named `wide`, which is float32."""
    scalars = {scalar.name: tag(scalar, i, False) for i, scalar in enumerate(reference.scalars)}
    tensors = {
        t.name: sample(t.shape, t.dtype, sizes, torch.float32 if t.name == wide else dtype) for t in reference.tensors
    }
    for x in tensors.values():
        x.requires_grad_(needs_gradient and x.is_floating_point())
    result = fn(**tensors, **scalars)
    return tuple(result) if isinstance(result, tuple | list) else (result,)
