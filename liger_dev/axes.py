"""Axes of shapes as SHAPES writes them, sizes in, numbers out: `"D/2"` is an axis half as long as D."""

import re

from collections.abc import Iterable
from collections.abc import Mapping

from liger_dev.profile import TensorField
from liger_dev.records import Tensor

Axis = str | int

_PART = re.compile(r"\s*([A-Za-z_]\w*)\s*//?\s*([1-9]\d*)\s*")


def normal(axis: Axis) -> Axis:
    """The one way to write an axis: `D/2`, not `D // 2`."""
    found = _PART.fullmatch(axis) if isinstance(axis, str) else None
    return f"{found[1]}/{found[2]}" if found else axis


def part_of(axis: Axis) -> tuple[str, int] | None:
    """`("D", 2)` of `"D/2"`; None for other axes."""
    found = _PART.fullmatch(axis) if isinstance(axis, str) else None
    return (found[1], int(found[2])) if found else None


def whole_of(axis: Axis) -> Axis:
    """`D` of `"D/2"`; other axes as they are."""
    part = part_of(axis)
    return part[0] if part else axis


def identifier(axis: str) -> str:
    """An axis's name in code: `D_2` for `"D/2"`."""
    part = part_of(axis)
    return f"{part[0]}_{part[1]}" if part else axis


def named(tensors: Iterable[Tensor | TensorField]) -> list[str]:
    """The axes that have a size of their own, in order."""
    axes = [axis for tensor in tensors for axis in tensor.shape if isinstance(axis, str)]
    return list(dict.fromkeys(str(whole_of(axis)) for axis in axes))


def extent(axis: Axis, sizes: Mapping[str, int]) -> int:
    """An axis's size."""
    if isinstance(axis, int):
        return axis
    part = part_of(axis)
    return sizes[part[0]] // part[1] if part else sizes[axis]


def multiples(tensors: Iterable[Tensor | TensorField]) -> dict[str, int]:
    """For each axis that has parts, the number that its size must be a multiple of."""
    found: dict[str, int] = {}
    for tensor in tensors:
        for axis in tensor.shape:
            if part := part_of(axis):
                found[part[0]] = max(found.get(part[0], 1), part[1])
    return found
