"""What the user typed in, a Source out: the catalogue, a file, an importable name or an expression, read as text only."""

import ast
import difflib
import re

from pathlib import Path
from typing import Any

from liger_dev.errors import BadInput
from liger_dev.records import Source

CATALOG = Path(__file__).parent / "catalog"

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<entry>[A-Za-z_]\w*))?\Z")
_IMPORT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?\Z")
_CLOSEST = re.compile(r'^CLOSEST = "(\w+)"\n', re.MULTILINE)
_FORMS = (
    "give a catalogue name, path.py:Name, module.path:Name or an expression such as 'silu(gate) * up'; "
    "prose and formulas need `--engine claude`"
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


def resolve(name: str, source: str | None, *, shapes: dict[str, str], init: list[str], cwd: Path) -> Source:
    """The Source that `--from` names; without it, `name` is looked up in the catalogue.

    Args:
        name: the operation's name, a lower-case identifier.
        shapes: from `--shape`, a tensor's name to its axes: `{"x": "B,T,H"}`.
        init: from `--init`, as typed: `["hidden_size=4096"]`.
        cwd: what a relative path starts from.

    Raises:
        BadInput: the source can't be found, read or understood.
    """
    if not _NAME.match(name):
        raise BadInput(
            f"'{name}' is no name for an operation", "NAME", "use lower-case letters, digits and _, such as rms_norm"
        )
    found = catalog_source(name) if source is None else _named(source.strip(), cwd)
    return Source(found.kind, found.text, found.entry, found.origin, parse_shapes(shapes), parse_init(init))


def parse_shapes(shapes: dict[str, str]) -> dict[str, Shape]:
    """`{"x": "B,T,2"}` as `{"x": ("B", "T", 2)}`."""
    return {tensor: _axes(tensor, text) for tensor, text in shapes.items()}


def parse_init(init: list[str]) -> dict[str, Any]:
    """`["hidden_size=4096", "eps=1e-6"]` as a mapping; values are Python literals."""
    values: dict[str, Any] = {}
    for item in init:
        key, equals, text = item.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
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
    if not items or not all(item.isidentifier() or item.isdecimal() for item in items):
        raise BadInput(
            f"'{tensor}={text}' is no shape", "--shape", f"name axes or give sizes: --shape {tensor or 'x'}=B,T,H"
        )
    return tuple(int(item) if item.isdecimal() else item for item in items)


def _named(source: str, cwd: Path) -> Source:
    if re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE):
        raise BadInput(
            "sources from a URL are not in this version yet", source, "save the page as a .py file and name that"
        )
    if match := _FILE.match(source):
        return _file(cwd / Path(match["path"]).expanduser(), match["entry"], match["path"])
    if (cwd / source).exists() and ("/" in source or not source.isidentifier()):
        raise _not_a_python_file(cwd / source, source)
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
    try:
        ast.parse(source, mode="eval")
    except (SyntaxError, ValueError):
        raise BadInput("the source is not understood", source, _FORMS) from None
    return Source("expression", source, "", f"expression: {source}")


def _file(path: Path, entry: str | None, shown: str) -> Source:
    if path.is_dir():
        raise _not_a_python_file(path, shown)
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
    return Source("function", text, _entry(text, entry, shown), shown)


def _entry(text: str, entry: str | None, shown: str) -> str:
    """The function or class to take: the one that is asked for, or the only public one."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise BadInput(
            f"the file is not valid Python: {error.msg}", f"{shown}:{error.lineno}", "mend the line"
        ) from None
    except ValueError as error:
        raise BadInput(f"the file is not valid Python: {error}", shown, "save it as plain text") from None
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = [name for name in names if not name.startswith("_")]
    if entry is not None:
        if entry in names:
            return entry
        raise BadInput(f"the file defines no '{entry}'", shown, f"it defines {_listing(names)}")
    if not public:
        raise BadInput("the file defines no public function or class", shown, "define the operation as a function")
    if len(public) > 1:
        raise BadInput(
            "the file defines several functions and classes", shown, f"name one: {shown}:NAME, of {_listing(public)}"
        )
    return public[0]


def _listing(names: list[str]) -> str:
    return ", ".join(names) if names else "no functions or classes"


def _not_a_python_file(path: Path, shown: str) -> BadInput:
    what = "the source is a directory" if path.is_dir() else "the source is not a Python file"
    return BadInput(what, shown, "name a .py file, as in path.py:Name")


def _unknown(name: str, what: str) -> BadInput:
    close = difflib.get_close_matches(name, [path.stem for path in _catalog_files()], n=3)
    near = f"did you mean {' or '.join(close)}? " if close else ""
    return BadInput(what, name, f"{near}`liger-dev list` shows the catalogue; --from SOURCE names another source")


def _catalog_files() -> list[Path]:
    return sorted(path for path in CATALOG.glob("*.py") if not path.stem.startswith("_"))


def _summary(text: str) -> str:
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
