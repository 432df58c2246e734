"""An expression such as `silu(gate) * up` in, the text of a reference function out."""

import ast
import difflib

from typing import Any

import torch
import torch.nn.functional as F

from liger_dev.errors import BadInput

_CONSTANTS = {"pi": "math.pi", "e": "math.e", "inf": "math.inf"}
_MODULES = frozenset(("torch", "F", "math"))
_USUAL = {"eps": 1e-6, "epsilon": 1e-6}
# Of these, torch.nn.functional has the one that people mean, though torch has a namesake with other arguments.
_LATER = frozenset(("sigmoid", "tanh", "softmax", "log_softmax", "relu"))


def expression_text(name: str, expression: str, init: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """A file that defines `name` by the expression, and what was assumed about it.

    Free names become tensor arguments in order of appearance; those in `init`, and `eps`, become numbers.

    Raises:
        BadInput: a function is unknown, or there is no tensor.
    """
    expression = " ".join(expression.split())
    tree = ast.parse(expression, mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    free: list[str] = []
    edits: list[tuple[int, int, str]] = []
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    for node in sorted(names, key=lambda node: (node.lineno, node.col_offset)):
        if id(node) in called:
            edits.append(_edit(node, _function(node.id, expression)))
        elif node.id in _CONSTANTS:
            edits.append(_edit(node, _CONSTANTS[node.id]))
        elif node.id not in _MODULES and node.id not in free:
            free.append(node.id)
    body = ast.unparse(ast.parse(_applied(expression, edits), mode="eval"))
    scalars = {n: init.get(n, _USUAL.get(n)) for n in free if n in init or n in _USUAL}
    tensors = [n for n in free if n not in scalars]
    if not tensors:
        raise BadInput(
            "the expression has no tensor in it", expression, "name at least one input, as in 'relu(x) ** 2'"
        )
    arguments = [f"{n}: torch.Tensor" for n in tensors]
    arguments += [f"{n}: {type(value).__name__} = {value!r}" for n, value in scalars.items()]
    result = _fresh("y", free)
    said = tuple(f"{n} is taken for a number with the default {_USUAL[n]}" for n in scalars if n not in init)
    text = (
        f'"""{name}, given by an expression: {_one_line(expression)}."""\n\n'
        f"{_imports(body)}\n\n"
        f"def {name}({', '.join(arguments)}) -> torch.Tensor:\n    {result} = {body}\n    return {result}\n"
    )
    return text, said


def _function(name: str, expression: str) -> str:
    """`silu` as `F.silu`, `rsqrt` as `torch.rsqrt`."""
    modules = (("torch", torch), ("F", F)) if name in _LATER else (("F", F), ("torch", torch))
    for prefix, module in modules:
        found = getattr(module, name, None)
        if callable(found) and not isinstance(found, type) and not name.startswith("_"):
            return f"{prefix}.{name}"
    close = difflib.get_close_matches(name, [n for n in (*dir(F), *dir(torch)) if not n.startswith("_")], n=3)
    near = f"did you mean {' or '.join(dict.fromkeys(close))}?" if close else "write it in terms of torch's functions"
    raise BadInput(f"neither torch.nn.functional nor torch has a function '{name}'", expression, near)


def _edit(node: ast.Name, text: str) -> tuple[int, int, str]:
    assert node.lineno == 1, "an expression is one line"
    return node.col_offset, node.col_offset + len(node.id.encode()), text


def _applied(expression: str, edits: list[tuple[int, int, str]]) -> str:
    data = expression.encode()
    for start, end, text in sorted(edits, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()


def _imports(body: str) -> str:
    used = {node.id for node in ast.walk(ast.parse(body, mode="eval")) if isinstance(node, ast.Name)}
    lines = ["import math\n"] if "math" in used else []
    lines.append("import torch")
    lines += ["import torch.nn.functional as F"] if "F" in used else []
    return "\n".join(lines) + "\n"


def _fresh(wanted: str, taken: list[str]) -> str:
    return wanted if wanted not in taken else _fresh(f"{wanted}_out", taken)


def _one_line(expression: str) -> str:
    return expression.replace("\\", " ").replace('"', "'")
