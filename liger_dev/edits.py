"""A Python file's text and one wish go in; the text with that one edit comes out, everything else as it was.

Positions come from the syntax tree, so comments and odd formatting survive. Each edit can be applied again without
effect.
"""

import ast
import io
import itertools
import re

from liger_dev.render import parse

_Natural = list[tuple[int, str]]


def add_import(text: str, module: str, name: str, noqa: str | None = None, where: str = "<text>") -> str:
    """`text` with the line `from module import name`, placed in isort's order among those of its block.

    `noqa` adds a comment such as `# noqa: F401`. An import that is there already, in whatever form, stays as it is.

    Raises:
        BadInput: `text` does not parse; `where` is named in the message.
    """
    tree = parse(text, where)
    if any(node.module == module and any(_bound(alias) == name for alias in node.names) for node in _froms(tree)):
        return text
    line = f"from {module} import {name}" + (f"  # noqa: {noqa}" if noqa else "")
    lines = _lines(text)
    block = _block(tree, module)
    if not block:
        return _open_block(lines, tree, line)
    key = _order(module, name)
    after = [node for node in block if _order(node.module or "", node.names[0].name) < key]
    at = _end(after[-1]) if after else block[0].lineno - 1
    return _insert(lines, at, line + "\n")


def add_function(text: str, function_source: str, where: str = "<text>") -> str:
    """`text` with a top-level function appended, or put in place of the function of the same name.

    Raises:
        BadInput: `text` does not parse.
    """
    wanted = parse(function_source, "the function's source").body
    assert len(wanted) == 1 and isinstance(wanted[0], ast.FunctionDef), "add_function takes one function"
    lines = _lines(text)
    end_of_line = _end_of_line(lines)
    source = (function_source.strip("\n") + "\n").replace("\n", end_of_line)
    old = _function(parse(text, where), wanted[0].name)
    if old is None:
        head = text.rstrip("\r\n")
        return head + 3 * end_of_line + source if head else source
    start, end = _start(old), _end(old)
    if "".join(lines[start:end]).rstrip("\r\n") == source.rstrip("\r\n"):
        return text
    return "".join((*lines[:start], source, *lines[end:]))


def _froms(tree: ast.Module) -> list[ast.ImportFrom]:
    return [node for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level]


def _block(tree: ast.Module, module: str) -> list[ast.ImportFrom]:
    """The top-level `from` imports of the same package as `module`."""
    package = module.partition(".")[0]
    return [node for node in _froms(tree) if (node.module or "").partition(".")[0] == package]


def _order(module: str, name: str) -> tuple[_Natural, int, _Natural, str]:
    """isort's order: modules by natural order regardless of case, then constants, classes and functions."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
    return _natural(module), kind, _natural(name), name


def _natural(name: str) -> _Natural:
    """A name in pieces that sort `a9` before `a10`."""
    return [(int(piece), "") if piece.isdigit() else (0, piece) for piece in re.split(r"(\d+)", name.lower())]


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name


def _open_block(lines: list[str], tree: ast.Module, line: str) -> str:
    """The file with `line` as the first import of its package: after all imports, or after the docstring."""
    documented = ast.get_docstring(tree, clean=False) is not None
    rest = tree.body[1:] if documented else tree.body
    imports = list(itertools.takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom), rest))
    if imports:
        return _insert(lines, _end(imports[-1]), f"\n{line}\n")
    if documented:
        at = _end(tree.body[0])
        blank_follows = at == len(lines) or not lines[at].strip()
        return _insert(lines, at, f"\n{line}\n" + ("" if blank_follows else "\n"))
    if not tree.body:
        return _insert(lines, len(lines), f"{line}\n")
    at = _start(tree.body[0])
    return _insert(lines, at, f"{line}\n\n\n")


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _start(node: ast.stmt) -> int:
    """The index of a statement's first line, decorators included."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1


def _end(node: ast.stmt | ast.expr) -> int:
    """The index of the line after a node."""
    assert node.end_lineno is not None, "a parsed node has an end"
    return node.end_lineno


def _lines(text: str) -> list[str]:
    """Lines as the parser counts them, with their ends; `str.splitlines` would also split at a form feed."""
    return io.StringIO(text, newline="").readlines()


def _end_of_line(lines: list[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def _insert(lines: list[str], at: int, text: str) -> str:
    """The file with whole lines inserted, in the line ends that it has."""
    end = _end_of_line(lines)
    text = text.replace("\n", end)
    head = "".join(lines[:at])
    if head and not head.endswith("\n"):
        head += end
    return head + text + "".join(lines[at:])
