"""A traced graph in, the names out that its own source lines give to its nodes."""

import ast
import re

from pathlib import Path

from torch.fx import Node

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in')


def source_line(node: Node) -> tuple[str, int]:
    """File and line of the innermost frame that a node comes from; ("", 0) if the trace has none."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)


def assigned_names(nodes: list[Node]) -> dict[Node, str]:
    """The target of the assignment whose last node a node is; a part of a tuple has its own target."""
    by_file: dict[str, list[Node]] = {}
    for node in nodes:
        file, _ = source_line(node)
        # torch's own tracing machinery stands in the outermost frames, and is all there is for a C++ function
        if node.op == "call_function" and Path(file).is_file() and "/torch/_" not in file:
            by_file.setdefault(file, []).append(node)
    names: dict[Node, str] = {}
    for file, group in by_file.items():
        names |= _names_in(ast.parse(Path(file).read_text(encoding="utf-8")), group)
    return names


def _names_in(tree: ast.Module, nodes: list[Node]) -> dict[Node, str]:
    kinds = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return
    statements = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    last: dict[ast.stmt, Node] = {}
    names: dict[Node, str] = {}
    for node in nodes:
        line = source_line(node)[1]
        covering = [s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
        if not covering:
            continue
        statement = max(covering, key=lambda s: s.lineno)
        last[statement] = node
        if name := _part(statement, node):
            names[node] = name
    return names | {node: name for statement, node in last.items() if (name := _target(statement))}


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        target = statement.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _part(statement: ast.stmt, node: Node) -> str:
    """`gate` for the first part of `gate, up = x.chunk(2, -1)`."""
    if getattr(node.target, "__name__", "") != "getitem" or not isinstance(statement, ast.Assign):
        return ""
    targets = statement.targets[0].elts if isinstance(statement.targets[0], ast.Tuple) else []
    index = node.args[1]
    target = targets[index] if isinstance(index, int) and index < len(targets) else None
    return target.id if isinstance(target, ast.Name) else ""
