"""A prompt's name and its values in, its text out; and text of others fenced, so that it reads as data."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from jinja2 import FileSystemLoader
from jinja2 import StrictUndefined

from liger_dev.records import digest

# An origin is a path or an address, which somebody else may have chosen.
_NO_MARKUP = str.maketrans(dict.fromkeys('"<>', " "))
_LONGEST_ORIGIN = 200


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["fence"] = fence
    return environment


def prompt(name: str, values: Mapping[str, Any]) -> str:
    """The prompt `name` (`analyze`) with its values filled in; a value that is missing is an error."""
    return _environment().get_template(f"{name}.md.jinja").render(values)


def fence(text: str, origin: str) -> str:
    """`text` between two marks that name its origin and that it can't contain: they carry its own hash."""
    mark = f"data-{digest(text)[:12]}"
    origin = " ".join(origin.translate(_NO_MARKUP).split())[:_LONGEST_ORIGIN]
    return f'<{mark} origin="{origin}">\n{text.rstrip()}\n</{mark}>'
