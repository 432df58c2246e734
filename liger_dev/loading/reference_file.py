"""The text of a reference file: a user's own file with as little changed as possible, or a printed function's file."""

import ast
import keyword
import sys

from dataclasses import dataclass
from dataclasses import field
from typing import Any

from liger_dev.axis_multiples import is_axis
from liger_dev.axis_multiples import renamed
from liger_dev.axis_multiples import without_multiples
from liger_dev.errors import BadInput
from liger_dev.records import Scalar
from liger_dev.records import Tensor

_OWN = frozenset(sys.stdlib_module_names) | {"torch"}
_EXAMPLES = {
    "SHAPES": '{"x": ("B", "T", "H")}',
    "PARAMETERS": '{"weight": "ones"}',
    "DTYPES": '{"target": "int"}',
    "RANGES": '{"target": "V"}',
    "STATIC": '{"reduction": ["mean", "sum"]}',
}


@dataclass(frozen=True)
class Constants:
    """What a reference file says about its tensors: `SHAPES` and `PARAMETERS`, None where it does not.

    `dtypes` and `ranges` are empty where it does not: a tensor is then what its annotation says. `static` gives the values
    that an argument may take.
    """

    shapes: dict[str, tuple[str | int, ...]] | None
    parameters: dict[str, str] | None
    dtypes: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, str] = field(default_factory=dict)
    static: dict[str, list[Any]] = field(default_factory=dict)


def read_constants(text: str, shown: str) -> Constants:
    """The file's constants. Raises BadInput if one is no literal of the right kind."""
    found: dict[str, Any] = {}
    for statement in ast.parse(text).body:
        for name in _EXAMPLES:
            if _assigns(statement, name):
                assert isinstance(statement, ast.Assign), "found by its target"
                found[name] = _literal(statement, name, shown)
    shapes = {key: tuple(shape) for key, shape in found["SHAPES"].items()} if "SHAPES" in found else None
    names = without_multiples(shapes or {})
    ranges = {tensor: names.get(axis, axis) for tensor, axis in found.get("RANGES", {}).items()}
    return Constants(
        renamed(shapes, names) if shapes is not None else None,
        found.get("PARAMETERS"),
        found.get("DTYPES", {}),
        ranges,
        found.get("STATIC", {}),
    )


def _literal(statement: ast.Assign, name: str, shown: str) -> dict[str, Any]:
    where = f"{shown}:{statement.lineno}"
    kind = tuple | list if name in ("SHAPES", "STATIC") else str
    try:
        value = ast.literal_eval(statement.value)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(k, str) and isinstance(v, kind) for k, v in value.items()):
        raise BadInput(f"{name} is no literal of the right form", where, f"write {name} = {_EXAMPLES[name]}")
    for tensor, axis in ((t, axis) for t, shape in value.items() if name == "SHAPES" for axis in shape):
        if not isinstance(axis, int) and (not isinstance(axis, str) or not is_axis(axis) or keyword.iskeyword(axis)):
            raise BadInput(
                f"SHAPES gives {tensor} the axis {axis!r}",
                where,
                "write a name, a part or a multiple of one such as 'D/2' or '2*D' (in place of N * D, name that), "
                "or a number for a size that is fixed",
            )
    return value


def depends_on(text: str) -> list[str]:
    """The modules beside torch and Python's own that a file imports."""
    roots: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            roots += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            roots.append("." if node.level else (node.module or "").partition(".")[0])
    return [root for root in dict.fromkeys(roots) if root not in _OWN]


def edited_file(
    text: str, entry: str, name: str, tensors: tuple[Tensor, ...], scalars: tuple[Scalar, ...], shown: str
) -> str:
    """A user's file, verbatim but for the entry's name, the order of its arguments, and constants that it lacks.

    Raises:
        BadInput: `name` is taken in the file, or arguments can't be put in the order tensors, then scalars.
    """
    tree = ast.parse(text)
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry)
    lines = _Lines(text)
    edits = _signature_edits(function, tensors, scalars, lines, shown)
    if entry != name:
        edits += _renaming(tree, function, name, lines, shown)
    edits += _constant_edits(tree, tensors, lines)
    data = text.encode()
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def printed_file(imports: str, function: str, tensors: tuple[Tensor, ...], summary: str, origin: str) -> str:
    """The file around a function that was printed from a graph."""
    docstring = f'"""{summary}\n\nSource: {origin}, printed from its traced graph.\n"""\n'
    return f"{docstring}\n{imports}\n{constants_text(tensors)}\n\n{function}"


def constants_text(tensors: tuple[Tensor, ...]) -> str:
    return _shapes_text(tensors) + _parameters_text(tensors) + _dtypes_text(tensors) + _ranges_text(tensors)


def _shapes_text(tensors: tuple[Tensor, ...]) -> str:
    return _dictionary("SHAPES", {t.name: _shape_text(t.shape) for t in tensors})


def _parameters_text(tensors: tuple[Tensor, ...]) -> str:
    rows = {t.name: f'"{t.init}"' for t in tensors if t.init}
    return _dictionary("PARAMETERS", rows) if rows else ""


def _dtypes_text(tensors: tuple[Tensor, ...]) -> str:
    rows = {t.name: f'"{t.dtype}"' for t in tensors if t.dtype != "float"}
    return _dictionary("DTYPES", rows) if rows else ""


def _ranges_text(tensors: tuple[Tensor, ...]) -> str:
    rows = {t.name: f'"{t.range}"' for t in tensors if t.range}
    return _dictionary("RANGES", rows) if rows else ""


def _dictionary(name: str, rows: dict[str, str]) -> str:
    line = f"{name} = {{{', '.join(f'{chr(34)}{key}{chr(34)}: {value}' for key, value in rows.items())}}}\n"
    if len(line) <= 120:
        return line
    return "\n".join([f"{name} = {{", *(f'    "{key}": {value},' for key, value in rows.items()), "}"]) + "\n"


def _shape_text(shape: tuple[str | int, ...]) -> str:
    items = [f'"{axis}"' if isinstance(axis, str) else str(axis) for axis in shape]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


class _Lines:
    """Byte offsets of syntax-tree positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0]
        for line in text.encode().splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node: Any) -> int:
        return int(self.starts[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        return int(self.starts[node.end_lineno - 1] + node.end_col_offset)

    def of(self, node: Any) -> str:
        return self.text.encode()[self.start(node) : self.end(node)].decode()


Edit = tuple[int, int, str]


def _signature_edits(
    function: ast.FunctionDef, tensors: tuple[Tensor, ...], scalars: tuple[Scalar, ...], lines: _Lines, shown: str
) -> list[Edit]:
    """Tensors first, then scalars, then what keeps its default; nothing where that is so already."""
    given = function.args
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    positional = [*given.posonlyargs, *given.args]
    defaults: dict[str, str] = {a.arg: lines.of(d) for a, d in zip(reversed(positional), reversed(given.defaults))}
    defaults |= {a.arg: lines.of(d) for a, d in zip(given.kwonlyargs, given.kw_defaults) if d is not None}
    by_name = {argument.arg: argument for argument in listed}
    changed = {
        s.name: repr(s.default)
        for s in scalars
        if s.default is not None and not _equal(defaults.get(s.name), s.default)
    }
    defaults |= changed
    ordered = sorted(scalars, key=lambda s: s.name in defaults)
    wanted = [t.name for t in tensors] + [s.name for s in ordered]
    wanted += [a.arg for a in listed if a.arg not in wanted]
    if wanted == [a.arg for a in listed] and not changed and not given.posonlyargs and not given.kwonlyargs:
        return []
    first_default = next((i for i, n in enumerate(wanted) if n in defaults), len(wanted))
    late = [n for n in wanted[first_default:] if n not in defaults]
    if late or given.kwarg:
        name = late[0] if late else f"**{given.kwarg.arg}"  # type: ignore[union-attr]
        raise BadInput(
            f"argument '{name}' can't stand after the tensors",
            f"{shown}:{function.lineno}",
            f"give '{name}' a default value",
        )
    texts = [_argument(lines.of(by_name[n]), defaults.get(n), by_name[n].annotation is not None) for n in wanted]
    ends = [*listed, *given.defaults, *(d for d in given.kw_defaults if d is not None)]
    start = min(lines.start(a) for a in listed)
    if given.posonlyargs or given.kwonlyargs:
        start = _after_parenthesis(function, lines)
    end = max(lines.end(node) for node in ends)
    return [(start, end, ", ".join(texts))]


def _after_parenthesis(function: ast.FunctionDef, lines: _Lines) -> int:
    """Where the first argument may begin: markers such as `*` have no node of their own."""
    start = lines.start(function)
    return lines.text.encode().index(b"(", start) + 1


def _argument(text: str, default: str | None, annotated: bool) -> str:
    if default is None:
        return text
    return f"{text} = {default}" if annotated else f"{text}={default}"


def _equal(text: str | None, value: Any) -> bool:
    if text is None:
        return False
    try:
        return bool(ast.literal_eval(text) == value)
    except ValueError:
        return True


def _renaming(tree: ast.Module, function: ast.FunctionDef, name: str, lines: _Lines, shown: str) -> list[Edit]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names} | {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    if name in bound:
        raise BadInput(
            f"the file already uses the name '{name}'", shown, f"rename it, or call the operation '{function.name}'"
        )
    data = lines.text.encode()
    start = data.index(function.name.encode(), data.index(b"def", lines.start(function)) + 3)
    edits = [(start, start + len(function.name.encode()), name)]
    edits += [(lines.start(node), lines.end(node), name) for node in names if node.id == function.name]
    return edits


def _constant_edits(tree: ast.Module, tensors: tuple[Tensor, ...], lines: _Lines) -> list[Edit]:
    """`SHAPES` and its like after the imports, or in place of the file's own where they differ."""
    edits: list[Edit] = []
    missing = ""
    others = (("DTYPES", _dtypes_text(tensors)), ("RANGES", _ranges_text(tensors)))
    for name, text in (("SHAPES", _shapes_text(tensors)), ("PARAMETERS", _parameters_text(tensors)), *others):
        own = next((statement for statement in tree.body if _assigns(statement, name)), None)
        if own is None:
            missing += text
        elif text and isinstance(own, ast.Assign) and not _equal_literal(own.value, text):
            edits.append((lines.start(own), lines.end(own), text.rstrip("\n")))
    if missing:
        edits.append(_insertion(tree, missing, lines))
    return edits


def _insertion(tree: ast.Module, text: str, lines: _Lines) -> Edit:
    """After the file's `SHAPES`, its last import or its docstring, whichever it has."""
    before = [s for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom) or _assigns(s, "SHAPES")]
    if not before and ast.get_docstring(tree, clean=False) is not None:
        before = [tree.body[0]]
    if not before:
        return 0, 0, f"{text}\n\n"
    position = lines.starts[before[-1].end_lineno or 1]
    return position, position, text if _assigns(before[-1], "SHAPES") else f"\n{text}"


def _equal_literal(value: ast.expr, text: str) -> bool:
    return bool(ast.literal_eval(value) == ast.literal_eval(text.partition(" = ")[2]))


def _assigns(statement: ast.stmt, name: str) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == name
    )
