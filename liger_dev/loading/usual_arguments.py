"""Arguments of a module's `__init__` that nobody gave in, the sizes out that are assumed for them."""

import inspect
import re

from collections.abc import Iterable

_WIDTHS = re.compile(
    r"(^|_)(dims?|sizes?|features|channels|width|hidden|embd|model|shape|inner|d|embeddings|vocab)(_|$)"
)
_COUNTS = re.compile(r"(^|_)(groups?|heads?|ngroups|nheads)(_|$)")
_FIRST_WIDTH, _COUNT = 64, 4


def usual_sizes(missing: Iterable[inspect.Parameter]) -> dict[str, int]:
    """A size for each argument whose name and annotation say that it is one: each width another, all counts alike."""
    found: dict[str, int] = {}
    width = _FIRST_WIDTH
    for parameter in missing:
        if not (_may_be_size(parameter) and names_size(parameter.name)):
            continue
        if _COUNTS.search(parameter.name):
            found[parameter.name] = _COUNT
        else:
            found[parameter.name] = width
            width *= 2
    return found


def names_size(name: str) -> bool:
    """Whether an argument of this name is a size or a number of groups."""
    return bool(_COUNTS.search(name) or _WIDTHS.search(name)) and "kernel" not in name


def _may_be_size(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return True
    words = set(re.findall(r"\w+", annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)))
    return "int" in words
