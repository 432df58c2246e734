"""A case and a seed in, its tensors out: signed random values, the case's special ones, in the case's layout."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch

from liger_dev.grading.cases import NON_FINITE
from liger_dev.grading.cases import Axes
from liger_dev.grading.cases import GradeCase
from liger_dev.grading.cases import axes_of
from liger_dev.grading.cases import shape_of
from liger_dev.grading.wire import DTYPES
from liger_dev.records import Tensor


def draw_inputs(
    tensors: Sequence[Tensor], case: GradeCase, generator: torch.Generator
) -> dict[str, torch.Tensor | None]:
    """The inputs of a case by name, on the CPU; None for an optional one that is left out."""
    axes = axes_of(tensors)
    inputs: dict[str, torch.Tensor | None] = {}
    for tensor in tensors:
        if tensor.name in case.absent or (case.alias and tensor.name == case.alias[0]):
            inputs[tensor.name] = None
            continue
        shape = shape_of(tensor, axes, case)
        dtype = DTYPES[case.parameters if case.parameters and tensor.init else case.dtype]
        value = _values(tensor, shape, dtype, axes, case, generator)
        inputs[tensor.name] = in_layout(value, case.layout)
    return inputs


def _values(
    tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, axes: Axes, case: GradeCase, generator: torch.Generator
) -> torch.Tensor:
    if tensor.dtype == "bool":
        return torch.randint(2, shape, generator=generator).bool()
    if tensor.dtype == "int":
        unknown = "" if tensor.is_mask else axes.columns
        counted = tensor.range if tensor.range in case.sizes else unknown
        return torch.randint(max(case.sizes.get(counted, 2), 1), shape, generator=generator)
    x = torch.randn(shape, generator=generator)
    return (x if tensor.init else _special(x, case.values)).to(dtype)


def _special(x: torch.Tensor, values: str) -> torch.Tensor:
    if values in NON_FINITE:
        x.view(-1)[1:2] = float(values)
        return x
    match values:
        case "":
            return x
        case "zeros":
            return torch.zeros_like(x)
        case "equal":
            return torch.full_like(x, 2.0)
        case "large":
            return x * 1e3
        case "tiny":
            return x * 1e-3
        case "far from zero":
            return x + 100.0
        case "saturated":
            return x.sign() * 60.0 + x
        case "one large row":
            if x.dim() > 1:
                x[..., :1, :] *= 30.0
            return x
    raise AssertionError(f"unknown values {values}")


def in_layout(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values in another layout; `expanded` repeats the first slice, `constant` 0.5, each with stride 0."""
    match layout:
        case "" | "random":
            return x
        case "zero":
            return torch.zeros_like(x)
        case "constant":
            return x.new_full((), 0.5).expand(x.shape)
        case "transposed":
            return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x
        case "expanded":
            return x[:1].clone().expand(x.shape) if x.dim() > 1 and len(x) else x
        case "sliced":
            return x.new_zeros((*x.shape[:-1], 2 * x.shape[-1] + 1))[..., 1::2].copy_(x) if x.dim() else x
        case "offset storage":
            return x.new_zeros(x.numel() + 3)[3:].view(x.shape).copy_(x)
    raise AssertionError(f"unknown layout {layout}")


def draw_upstream(
    outputs: Sequence[Mapping[str, Any]], case: GradeCase, generator: torch.Generator
) -> dict[str, torch.Tensor | None]:
    """A gradient for each output of floating numbers, by its position; None for the others."""
    upstream: dict[str, torch.Tensor | None] = {}
    for index, output in enumerate(outputs):
        dtype = DTYPES[output["dtype"]]
        value = torch.randn(output["shape"], generator=generator).to(dtype) if dtype.is_floating_point else None
        upstream[str(index)] = None if value is None else in_layout(value, case.upstream)
    return upstream
