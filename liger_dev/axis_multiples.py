"""Shapes with multiples of axes in, the same with parts of longer axes out: `2*H` beside `H` is `H2` beside `H2/2`."""

import math
import re

from collections.abc import Mapping

Axis = str | int
Shapes = Mapping[str, tuple[Axis, ...]]

_NAME, _COUNT = r"([A-Za-z_]\w*)", r"([1-9]\d*)"
_TIMES = re.compile(rf"\s*(?:{_COUNT}\s*\*\s*{_NAME}|{_NAME}\s*\*\s*{_COUNT})\s*")
_PART = re.compile(rf"\s*{_NAME}\s*//?\s*{_COUNT}\s*")
_FORMS = (re.compile(_NAME), _TIMES, _PART)


def is_axis(text: str) -> bool:
    """Whether it is a name, a part of one or a multiple of one."""
    return any(form.fullmatch(text) for form in _FORMS)


def without_multiples(shapes: Shapes) -> dict[str, str]:
    """What to call each axis that is a multiple, is what one is made of, or is a part of that; other axes have no row."""
    axes = {axis for shape in shapes.values() for axis in shape if isinstance(axis, str)}
    counts: dict[str, list[int]] = {}
    for name, count in filter(None, map(_times, axes)):
        counts.setdefault(name, []).append(count)
    length = {name: math.lcm(*found) for name, found in counts.items()}
    whole: dict[str, str] = {}
    for name, count in length.items():
        own = f"{name}{count}"
        while own in axes or own in whole.values():
            own += "_"
        whole[name] = own
    names = {name: _part(whole[name], count) for name, count in length.items()}
    for axis in axes:
        if times := _times(axis):
            names[axis] = _part(whole[times[0]], length[times[0]] // times[1])
        elif (found := _PART.fullmatch(axis)) and found[1] in whole:
            names[axis] = _part(whole[found[1]], length[found[1]] * int(found[2]))
    return names


def _times(axis: str) -> tuple[str, int] | None:
    """`("H", 2)` of `"2*H"`; None for other axes."""
    found = _TIMES.fullmatch(axis)
    return (found[2] or found[3], int(found[1] or found[4])) if found else None


def _part(whole: str, count: int) -> str:
    return whole if count == 1 else f"{whole}/{count}"


def renamed(shapes: Shapes, names: Mapping[str, str]) -> dict[str, tuple[Axis, ...]]:
    """The shapes with those axes called by their new names."""
    return {
        tensor: tuple(names.get(axis, axis) if isinstance(axis, str) else axis for axis in shape)
        for tensor, shape in shapes.items()
    }
