"""What the user typed in, a Source out: the catalogue, a text or an importable name, read and not run."""

import ast
import difflib
import re

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from liger_dev.axis_multiples import is_axis
from liger_dev.axis_multiples import renamed
from liger_dev.axis_multiples import without_multiples
from liger_dev.errors import BadInput
from liger_dev.fetching import fetch
from liger_dev.fetching import is_url
from liger_dev.records import Source
from liger_dev.source_texts import expression_source
from liger_dev.source_texts import file_source
from liger_dev.source_texts import is_expression
from liger_dev.source_texts import not_a_python_file
from liger_dev.source_texts import read_standard_input
from liger_dev.source_texts import text_source
from liger_dev.source_texts import url_source

CATALOG = Path(__file__).parent / "catalog"

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<entry>[A-Za-z_]\w*))?\Z")
_STDIN = re.compile(r"-(?::(?P<entry>[A-Za-z_]\w*))?\Z")
_IMPORT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?\Z")
_CLOSEST = re.compile(r'^CLOSEST = "(\w+)"\n', re.MULTILINE)
_FORMS = (
    "give a catalogue name, path.py:Name, module.path:Name, https://HOST/PATH.py:Name, - for standard input, "
    "or an expression such as 'silu(gate) * up'; "
    "prose and formulas need an agent: `--engine claude`, and ANTHROPIC_API_KEY"
)

Shape = tuple[str | int, ...]


def catalog_names() -> list[tuple[str, str]]:
    """The catalogue's operations with the first line of their docstrings, in order of name."""
    return [(path.stem, _summary(path.read_text(encoding="utf-8"))) for path in _catalog_files()]


def catalog_source(name: str) -> Source:
    """The catalogue's reference of an operation. Raises BadInput, with the closest names, if there is none."""
    path = CATALOG / f"{name}.py"
    if path not in _catalog_files():
        raise _unknown(name, f"the catalogue has no operation '{name}'")
    text = _CLOSEST.sub("", path.read_text(encoding="utf-8"))
    return Source("function", text, name, f"catalogue: {name}")


def closest_in_catalog(name: str) -> str:
    """The kernel that the catalogue calls closest to an operation's, "" if it calls none."""
    found = _CLOSEST.search((CATALOG / f"{name}.py").read_text(encoding="utf-8"))
    return found[1] if found else ""


def resolve(
    name: str,
    source: str | None,
    *,
    shapes: dict[str, str],
    init: list[str],
    cwd: Path,
    part: int = 0,
    words: bool = False,
    read_stdin: Callable[[], str] = read_standard_input,
    read_url: Callable[[str], str] = fetch,
) -> Source:
    """The Source that `--from` names; without it, `name` is looked up in the catalogue.

    Args:
        name: the operation's name, a lower-case identifier.
        shapes: from `--shape`, a tensor's name to its axes: `{"x": "B,T,H"}`.
        init: from `--init`, as typed: `["hidden_size=4096", "config.hidden_size=64"]`.
        cwd: what a relative path starts from.
        part: from `--part`, which part of a module with linear layers to take; 0 if there is but one.
        words: a text from an address or standard input that is no Python is words, for an agent.
        read_stdin, read_url: what `-` and an https address are read with.

    Raises:
        BadInput: the source can't be found, read or understood.
    """
    if not _NAME.match(name):
        raise BadInput(
            f"'{name}' is no name for an operation", "NAME", "use lower-case letters, digits and _, such as rms_norm"
        )
    if source is None:
        found = catalog_source(name)
    elif stdin := _STDIN.match(source.strip()):
        found = text_source(read_stdin(), stdin["entry"], "standard input", name, words)
    elif is_url(source.strip()):
        found = url_source(source.strip(), name, read_url, words)
    else:
        found = _named(source.strip(), name, cwd)
    return replace(found, shapes=parse_shapes(shapes), init=parse_init(init), part=part)


def parse_shapes(shapes: dict[str, str]) -> dict[str, Shape]:
    """`{"x": "B,T,2"}` as `{"x": ("B", "T", 2)}`."""
    found = {tensor: _axes(tensor, text) for tensor, text in shapes.items()}
    return renamed(found, without_multiples(found))


def parse_init(init: list[str]) -> dict[str, Any]:
    """`["hidden_size=4096", "eps=1e-6"]` as a mapping; values are Python literals."""
    values: dict[str, Any] = {}
    for item in init:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not all(word.isidentifier() for word in key.split(".")):
            raise BadInput(f"'{item}' is not of the form name=value", "--init", "write --init hidden_size=4096")
        try:
            values[key] = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError):
            raise BadInput(
                f"the value of '{item}' is no Python literal", "--init", f"quote a string: --init {key}='\"{text}\"'"
            ) from None
    return values


def _axes(tensor: str, text: str) -> Shape:
    items = [item.strip() for item in text.strip().strip("()[]").split(",") if item.strip()]
    if not items or not all(is_axis(item) or item.isdecimal() for item in items):
        raise BadInput(
            f"'{tensor}={text}' is no shape", "--shape", f"name axes or give sizes: --shape {tensor or 'x'}=B,T,H"
        )
    return tuple(int(item) if item.isdecimal() else item for item in items)


def _named(source: str, name: str, cwd: Path) -> Source:
    if match := _FILE.match(source):
        return file_source(cwd / Path(match["path"]).expanduser(), match["entry"], match["path"], name)
    if (cwd / source).exists() and ("/" in source or not source.isidentifier()):
        raise not_a_python_file(cwd / source, source)
    if source.isidentifier():
        if (CATALOG / f"{source}.py").is_file():
            return catalog_source(source)
        raise _unknown(
            source, f"'{source}' is neither in the catalogue nor a file, an importable name or an expression"
        )
    if _IMPORT.match(source):
        return Source("import", "", _split_import(source), source)
    return _expression(source)


def _split_import(source: str) -> str:
    """`module:qualname`; where the source has dots alone, the child finds out how many of them are modules."""
    if ":" in source:
        return source
    module, _, last = source.rpartition(".")
    return f"{module}:{last}"


def _expression(source: str) -> Source:
    if not is_expression(source):
        raise BadInput("the source is not understood", source, _FORMS)
    return expression_source(source)


def _unknown(name: str, what: str) -> BadInput:
    close = difflib.get_close_matches(name, [path.stem for path in _catalog_files()], n=3)
    near = f"did you mean {' or '.join(close)}? " if close else ""
    return BadInput(what, name, f"{near}`liger-dev list` shows the catalogue; --from SOURCE names another source")


def _catalog_files() -> list[Path]:
    return sorted(path for path in CATALOG.glob("*.py") if not path.stem.startswith("_"))


def _summary(text: str) -> str:
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
