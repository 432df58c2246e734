"""Scalars with choices in, every combination of their values out: each one has kernels of its own."""

import itertools

from collections.abc import Sequence
from typing import Any

from liger_dev.literals import literal
from liger_dev.records import Scalar

Setting = dict[str, Any]


def static(scalars: Sequence[Scalar]) -> list[Scalar]:
    """The scalars whose values are compiled in."""
    return [scalar for scalar in scalars if scalar.choices]


def settings(scalars: Sequence[Scalar]) -> list[Setting]:
    """Every combination of choices, the defaults first; one empty setting if nothing has choices."""
    chosen = static(scalars)
    rows = itertools.product(*(scalar.choices for scalar in chosen))
    return [{scalar.name: value for scalar, value in zip(chosen, row)} for row in rows]


def setting_text(setting: Setting) -> str:
    """`reduction="sum", log_target=True`."""
    return ", ".join(f"{name}={literal(value)}" for name, value in setting.items())
