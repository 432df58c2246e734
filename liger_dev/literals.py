"""A Python value goes in; the literal that a person would write comes out."""

import re

from typing import Any


def literal(value: Any) -> str:
    """A Python literal as a person writes it: `1e-6`, not `1e-06`."""
    text = repr(value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0*(\d)", lambda match: f"e{match[1].replace('+', '')}{match[2]}", text)
    return f'"{value}"' if isinstance(value, str) and '"' not in value and "\\" not in value else text
