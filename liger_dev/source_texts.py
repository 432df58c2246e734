"""A text in, a Source out: from a file, standard input or a URL, with the function or class in it that is meant."""

import ast
import sys

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from liger_dev.errors import BadInput
from liger_dev.fetching import LARGEST
from liger_dev.fetching import raw_address
from liger_dev.fetching import split_entry
from liger_dev.records import Source
from liger_dev.records import digest


def file_source(path: Path, entry: str | None, shown: str, name: str) -> Source:
    """The Source in a Python file, which the user calls `shown`. Raises BadInput if it can't be read."""
    if path.is_dir():
        raise not_a_python_file(path, shown)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(
            "there is no such file", shown, f"the working directory is {path.parent}; check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise BadInput("the file is not UTF-8", f"{shown}, byte {error.start}", "save it as UTF-8") from None
    except OSError as error:
        raise BadInput(f"the file can't be read: {error.strerror}", shown, "check its permissions") from None
    return Source("function", text, _entry(text, entry, shown, name), shown)


def url_source(source: str, name: str, read_url: Callable[[str], str], words: bool = False) -> Source:
    """The Source at an https address, `:Name` after it or not; `words` as in `text_source`.

    Raises BadInput for what `fetch` refuses.
    """
    page, entry = split_entry(source)
    address = raw_address(page)
    text = read_url(address)
    return replace(_code_or_words(text, entry, address, name, words), sha256=digest(text))


def text_source(text: str, entry: str | None, shown: str, name: str, words: bool = False) -> Source:
    """The Source in a snippet: an expression, or the text of a Python file; else, if there may be `words`, those."""
    if not text.strip():
        raise BadInput("there is nothing on it", shown, "pipe a Python file or an expression into it")
    if entry is None and is_expression(text):
        return expression_source(" ".join(text.split()))
    return _code_or_words(text, entry, shown, name, words)


def expression_source(text: str) -> Source:
    return Source("expression", text, "", f"expression: {text}")


def is_expression(text: str) -> bool:
    try:
        ast.parse(" ".join(text.split()), mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def read_standard_input() -> str:
    """What stands on standard input. Raises BadInput if it is too long or no UTF-8."""
    if sys.stdin.isatty():
        print("reading a Python file or an expression from the terminal; end it with Ctrl-D", file=sys.stderr)
    data = sys.stdin.buffer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadInput(f"the text is longer than {LARGEST:,} bytes", "standard input", "name a smaller file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("the text is not UTF-8", f"standard input, byte {error.start}", "save it as UTF-8") from None


def not_a_python_file(path: Path, shown: str) -> BadInput:
    what = "the source is a directory" if path.is_dir() else "the source is not a Python file"
    return BadInput(what, shown, "name a .py file, as in path.py:Name")


def _code_or_words(text: str, entry: str | None, shown: str, name: str, words: bool) -> Source:
    if words and entry is None and not _parses(text):
        return Source("prose", text, "", shown)
    return _python(text, entry, shown, name)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _python(text: str, entry: str | None, shown: str, name: str) -> Source:
    return Source("function", text, _entry(text, entry, shown, name), shown)


def _entry(text: str, entry: str | None, shown: str, name: str) -> str:
    """The function or class to take: the one that is asked for, or the only one that can be meant."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise BadInput(
            f"the file is not valid Python: {error.msg}", f"{shown}:{error.lineno}", "mend the line"
        ) from None
    except ValueError as error:
        raise BadInput(f"the file is not valid Python: {error}", shown, "save it as plain text") from None
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    if entry is not None:
        if entry in names:
            return entry
        raise BadInput(f"the file defines no '{entry}'", shown, f"it defines {_listing(names)}")
    public = [name for name in names if not name.startswith("_")]
    if not public:
        raise BadInput("the file defines no public function or class", shown, "define the operation as a function")
    if "get_inputs" in names:  # KernelBench's convention
        if "Model" in names:
            return "Model"
        public = [name for name in public if name not in ("get_inputs", "get_init_inputs")]
    alike = [own for own in public if own.lower() == name.replace("_", "").lower()]
    for likely in ([name] if name in public else [], alike, public, _unused(tree, public)):
        if len(likely) == 1:
            return likely[0]
    raise BadInput(
        "the file defines several functions and classes",
        shown,
        f"name one: {'-' if shown == 'standard input' else shown}:NAME, of {_listing(public)}",
    )


def _unused(tree: ast.Module, names: list[str]) -> list[str]:
    """The definitions that no other definition uses: a module's configuration and a function's helpers are used."""
    used: set[str] = set()
    for definition in tree.body:
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            used |= {n.id for n in ast.walk(definition) if isinstance(n, ast.Name)} - {definition.name}
    return [name for name in names if name not in used]


def _listing(names: list[str]) -> str:
    return ", ".join(names) if names else "no functions or classes"
