"""Names from the reference's source: which value each assignment of the reference names, and where a node stands."""

import ast
import re

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_DTYPES = {"half": "float16", "double": "float64"}


@dataclass(frozen=True)
class SourceMap:
    """The statements of a reference file, by line."""

    path: Path
    lines: tuple[str, ...]
    statements: tuple[ast.stmt, ...]

    @classmethod
    def read(cls, path: Path) -> "SourceMap":
        text = path.read_text()
        kinds = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return
        statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
        return cls(path, tuple(text.splitlines()), tuple(statements))

    def line_of(self, node: Any) -> int:
        """The line of the innermost frame of an fx node that lies in this file; 0 if there is none."""
        frames = _FRAME.findall(node.meta.get("stack_trace") or "")
        lines = [int(line) for file, line, _ in frames if Path(file) == self.path]
        return lines[-1] if lines else 0

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost assignment or return that covers a line."""
        covering = [s for s in self.statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
        return max(covering, key=lambda s: s.lineno, default=None)

    def describe(self, node: Any) -> str:
        """`line 7: y = x.cumsum(-1)`, for an error message."""
        line = self.line_of(node)
        return f"line {line}: {self.lines[line - 1].strip()}" if line else ""

    def targets(self, nodes: list[Any]) -> dict[Any, str]:
        """The nodes that an assignment names: the last node of each statement."""
        last: dict[ast.stmt, Any] = {}
        for node in nodes:
            statement = self.statement(self.line_of(node))
            if statement is not None:
                last[statement] = node
        return {node: name for statement, node in last.items() if (name := _target(statement))}

    def cast_like(self, node: Any) -> str:
        """The variable whose dtype a cast is to: `x` for `.to(x.dtype)`, and for `.to(dtype)` after `dtype = x.dtype`."""
        statement = self.statement(self.line_of(node))
        if statement is None:
            return ""
        calls = [c for c in ast.walk(statement) if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)]
        found = {self._dtype_owner(c.args[0]) for c in calls if c.func.attr in ("to", "type_as") and c.args}  # type: ignore[attr-defined]
        return found.pop() if len(found) == 1 else ""

    def fixed_dtypes(self, node: Any) -> set[str]:
        """The dtypes that a node's statement names itself: `float16` for `.to(torch.float16)` and for `.half()`."""
        statement = self.statement(self.line_of(node))
        found: set[str] = set()
        for part in ast.walk(statement) if statement is not None else ():
            match part:
                case ast.Attribute(value=ast.Name(id="torch"), attr=name):
                    found.add(_DTYPES.get(name, name))
                case ast.Call(func=ast.Attribute(attr="half" | "bfloat16" | "double" as name)):
                    found.add(_DTYPES.get(name, name))
        return found

    def _dtype_owner(self, node: ast.expr) -> str:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="dtype"):
                return name
            case ast.Name(id=name):
                for statement in self.statements:
                    if _target(statement) == name and isinstance(statement, ast.Assign):
                        plain = isinstance(statement.value, ast.Name)
                        return name if plain else self._dtype_owner(statement.value) or name  # a tensor, perhaps
                return name
        return ""

    def returned(self) -> list[str]:
        """What the last return statement calls its results: names where they are names, else ''."""
        returns = [s for s in self.statements if isinstance(s, ast.Return) and s.value is not None]
        if not returns:
            return []
        value = returns[-1].value
        items = value.elts if isinstance(value, ast.Tuple) else [value]
        return [item.id if isinstance(item, ast.Name) else "" for item in items]


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    if isinstance(statement, ast.AnnAssign | ast.AugAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return ""
