"""What the user typed in, words as a Source for an agent out; and a name for an operation that is given in words alone."""

import re

from pathlib import Path

from liger_dev.errors import BadInput
from liger_dev.records import Source

_FILES = (".md", ".rst", ".tex", ".txt")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*\Z")
# A name ends before the words that say more of the thing than what it is.
_ENDS = frozenset("with of over for in on by from and to where that then without as at per using plus is are".split())
_ARTICLES = frozenset(("a", "an", "the"))
_LONGEST = 5


def prose_source(text: str, cwd: Path) -> Source | None:
    """A text that no code can read as a source for an agent: words, a formula, or a file of them; None if it is neither."""
    place = cwd / text
    if text.endswith(_FILES) and len(text) < 256 and place.is_file():
        return Source("prose", place.read_text(encoding="utf-8"), "", text)
    return Source("prose", text, "", "prose") if is_words(text) else None


def is_words(text: str) -> bool:
    """Whether a text is several words, and neither an address nor a file's name."""
    return len(text.split()) > 1 and "://" not in text.split()[0] and not text.endswith(".py")


def name_of(text: str) -> str:
    """A name made of the words a description begins with: "root mean square norm with …" is `root_mean_square_norm`.

    Raises BadInput for a text that begins with no words, such as a formula.
    """
    words: list[str] = []
    for token in text.split():
        word = token.rstrip(",.;:")
        if not _WORD.match(word) or word.lower() in _ENDS or len(words) == _LONGEST:
            break
        if word.lower() not in _ARTICLES:
            words.append(word.lower())
        if word != token:
            break
    name = "_".join(words)
    if len(name) < 3:
        raise BadInput("no name can be made of that", text, 'give one: liger-dev new NAME --from "…"')
    return name
