"""`python test/sources/transformers_verdicts.py` looks at each line of transformers_classes.txt and writes its verdict again.

A line is a source with its options, ` | ` and a verdict: `compiles, tier N`; `reference: WHY` where the source becomes a
reference that the compiler refuses; `refused: WHY` where there is no reference.
"""

import itertools
import shlex
import sys
import tempfile
import warnings

from pathlib import Path

from liger_dev.compiler import compile_op
from liger_dev.errors import LigerDevError
from liger_dev.loading import load
from liger_dev.sources import resolve

_NUMBERS = itertools.count()
LIST = Path(__file__).with_name("transformers_classes.txt")


def rows() -> list[tuple[str, str]]:
    """Sources with their options, and their verdicts."""
    lines = [line for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [(source.strip(), verdict.strip()) for source, _, verdict in (line.partition(" | ") for line in lines)]


def verdict(line: str) -> str:
    source, *words = shlex.split(line)
    options: dict[str, list[str]] = {"--init": [], "--shape": [], "--part": []}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        options[flag].append(value)
    shapes = dict(shape.split("=") for shape in options["--shape"])
    name = f"op_{next(_NUMBERS)}"  # torch keeps traces of a name that was seen before
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            part = int(*options["--part"])
            found = resolve(name, source, shapes=shapes, init=options["--init"], cwd=Path(folder), part=part)
            reference = load(name, found, Path(folder).resolve())
        except LigerDevError as error:
            return f"refused: {error.what}"
        try:
            return f"compiles, tier {compile_op(reference, {}).profile['tier']}"
        except LigerDevError as error:
            return f"reference: {error.what}"


if __name__ == "__main__":
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    written = []
    for line, _ in rows():
        written.append(f"{line} | {verdict(line)}")
        print(written[-1], file=sys.stderr, flush=True)
    LIST.write_text("\n".join([*head, *written]) + "\n")
