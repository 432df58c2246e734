"""A file whose `F.rms_norm` is given no eps in, the same file with the one that torch takes for the dtypes of kernels out.

It depends on the dtype that the norm is computed in: in float64, where the truth is, it would be another.
"""

import ast

_HOMES = frozenset(("F", "functional", "nn.functional", "torch.nn.functional", "torch"))
_GIVEN = "eps=torch.finfo(torch.float32).eps"


def with_epsilon(text: str) -> str:
    """The text of a file with an explicit eps in each call of torch's rms_norm that has none."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _lacks_epsilon(node)]
    ends = [max((_end(part) for part in (*call.args, *(k.value for k in call.keywords)))) for call in calls]
    for line, column in sorted(ends, reverse=True):
        lines[line] = lines[line][:column] + f", {_GIVEN}".encode() + lines[line][column:]
    return b"".join(lines).decode()


def _lacks_epsilon(call: ast.Call) -> bool:
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "rms_norm"
    if not named or ast.unparse(call.func.value) not in _HOMES:  # type: ignore[attr-defined]
        return False
    return (
        2 <= len(call.args) + len(call.keywords)
        and len(call.args) < 4
        and all(k.arg not in ("eps", None) for k in call.keywords)
    )


def _end(part: ast.expr) -> tuple[int, int]:
    """The line and the byte in it where an expression ends."""
    assert part.end_lineno is not None and part.end_col_offset is not None, "the parser knows where it ends"
    return part.end_lineno - 1, part.end_col_offset
