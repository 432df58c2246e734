"""A file's text in, the same text with what a trace does not see spelled out, and without what compiles it.

`F.rms_norm` without an eps takes one that depends on the dtype that it is computed in: in float64, where the truth is, it
would be another. `x.data` is a constant to a trace, where `x.detach()` is a value. `@torch.jit.script` and its like change how a
function is run and not what it computes, and hide its signature.
"""

import ast

_HOMES = frozenset(("F", "functional", "nn.functional", "torch.nn.functional", "torch"))
_COMPILES = frozenset(
    f"{home}{name}"
    for home in ("", "torch.")
    for name in ("compile", "jit.script", "jit.script_if_tracing", "jit.ignore", "jit.unused")
)
_GIVEN = "eps=torch.finfo(torch.float32).eps"


def spelled_out(text: str) -> str:
    """The text with an eps in each call of torch's rms_norm that has none, and `detach()` for `data`."""
    found = [(*_end(node), *_change(node)) for node in ast.walk(ast.parse(text)) if _change(node)[1]]
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for line, column, less, added in sorted(found, reverse=True):
        lines[line] = lines[line][: column - less] + added.encode() + lines[line][column:]
    return b"".join(lines).decode()


def without_compilation(text: str) -> str:
    """The text without decorators that compile functions."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called) in _COMPILES:
                assert decorator.end_lineno is not None, "the parser knows where it ends"
                lines[decorator.lineno - 1 : decorator.end_lineno] = [""] * (
                    decorator.end_lineno - decorator.lineno + 1
                )
    return "".join(lines)


def _change(node: ast.AST) -> tuple[int, str]:
    """How many bytes go at the end of a node, or of a call's last argument, and what comes there."""
    if isinstance(node, ast.Call) and _lacks_epsilon(node):
        return 0, f", {_GIVEN}"
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
        return len("data"), "detach()"
    return 0, ""


def _lacks_epsilon(call: ast.Call) -> bool:
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "rms_norm"
    if not named or ast.unparse(call.func.value) not in _HOMES:  # type: ignore[attr-defined]
        return False
    return (
        2 <= len(call.args) + len(call.keywords)
        and len(call.args) < 4
        and all(k.arg not in ("eps", None) for k in call.keywords)
    )


def _end(node: ast.AST) -> tuple[int, int]:
    """The line and the byte in it where an expression, or the last argument of a call, ends."""
    if isinstance(node, ast.Call):
        return max(_end_of(part) for part in (*node.args, *(k.value for k in node.keywords)))
    assert isinstance(node, ast.expr), "what is changed is an expression"
    return _end_of(node)


def _end_of(part: ast.expr) -> tuple[int, int]:
    assert part.end_lineno is not None and part.end_col_offset is not None, "the parser knows where it ends"
    return part.end_lineno - 1, part.end_col_offset
