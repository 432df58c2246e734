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
    for call in sorted(calls, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0), reverse=True):
        last = [*call.args, *call.keywords][-1]
        assert last.end_lineno is not None and last.end_col_offset is not None, "the parser knows where it ends"
        line, at = lines[last.end_lineno - 1], last.end_col_offset
        lines[last.end_lineno - 1] = line[:at] + f", {_GIVEN}".encode() + line[at:]
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
