"""A constant of a traced graph in, the expression out of the scalar argument that it was computed from.

Scalars are traced as tags: numbers near their defaults, with digits that occur nowhere else.
"""

import re

from collections.abc import Iterator
from typing import Any

import torch

SUM, PRODUCT, UNARY, POWER, ATOM = range(4, 9)


def number_text(value: Any) -> str:
    """`1e-6`, where repr writes 1e-06; `float("inf")`, which has no literal."""
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return f'float("{value}")'
    return re.sub(r"e([-+])0(\d)", r"e\1\2", repr(value))


def tags_found(graph: torch.fx.Graph, tags: dict[str, float]) -> set[str]:
    """The scalars whose tag, or a simple function of it, is a constant of the graph."""
    numbers = [n for node in graph.nodes for n in _numbers((node.args, node.kwargs))]
    return {name for name in tags if any(derived(n, {name: tags[name]}) for n in numbers)}


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        yield from _numbers(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _numbers(item)


def derived(number: float, tags: dict[str, float]) -> tuple[str, int] | None:
    """A constant as an expression of the scalar it was computed from, with its precedence."""
    for name, tag in tags.items():
        forms = (
            (tag, name, ATOM),
            (-tag, f"-{name}", UNARY),
            (1 - tag, f"1 - {name}", SUM),
            (1 + tag, f"1 + {name}", SUM),
            (1 / tag, f"1 / {name}", PRODUCT),
            (tag * tag, f"{name} * {name}", PRODUCT),
        )
        for value, text, precedence in forms:
            if abs(number - value) <= 1e-12 * abs(value):
                return text, precedence
    return None
