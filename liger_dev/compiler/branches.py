"""Statements for each setting of static arguments in, one list of statements with branches out.

What all settings have in common stands once; where they differ, a branch on the argument takes its place. The statements
that a setting runs are exactly those it came with.
"""

import itertools

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from liger_dev.choices import Setting
from liger_dev.literals import literal

Body = list[str]

# Lines that a branch in a branch must save.
_CLEARLY = 3


@dataclass(frozen=True)
class _Node:
    """A statement: the headers of its clauses (`if …:`, `else:`), each with what stands below it, the first one with the
    comments above it. `apart`: a blank line stands before it."""

    heads: tuple[str, ...]
    below: tuple[tuple["_Node", ...], ...]
    apart: bool


_Nodes = tuple[_Node, ...]


def merged(bodies: Sequence[tuple[Setting, Body]]) -> tuple[Body, list[str]]:
    """The statements of all settings with branches where they differ, and the arguments that are branched on.

    Which argument is branched on inside of which is chosen so that the statements are few.
    """
    parsed = [(setting, _parse(body)) for setting, body in bodies]
    tries = []
    for names in itertools.permutations(bodies[0][0]):
        used: dict[str, None] = {}
        lines = _lines(_merged(parsed, names, used))
        tries.append((len(lines), lines, used))
    _, lines, used = min(tries, key=lambda row: row[0])
    return lines, [name for name in bodies[0][0] if name in used]


def common_share(bodies: Sequence[Body], together: Body) -> float:
    """How much shorter the statements are together: 1 where nothing differs, 0 where nothing is shared."""
    apart = sum(len(body) for body in bodies)
    shortest = max(len(body) for body in bodies)
    return 1.0 if apart == shortest else (apart - len(together)) / (apart - shortest)


def _parse(lines: Sequence[str]) -> _Nodes:
    nodes: list[_Node] = []
    apart, i = False, 0
    while i < len(lines):
        line = lines[i]
        i += 1
        if not line:
            apart = True
            continue
        while line.rpartition("\n")[2].startswith("#") and i < len(lines) and lines[i]:
            line = f"{line}\n{lines[i]}"
            i += 1
        end = i
        while end < len(lines) and (lines[end].startswith("    ") or not lines[end]):
            end += 1
        while end > i and not lines[end - 1]:
            end -= 1
        below = (_parse([text.removeprefix("    ") for text in lines[i:end]]),)
        if line.startswith(("else:", "elif ")):
            last = nodes.pop()
            nodes.append(_Node((*last.heads, line), (*last.below, *below), last.apart))
        else:
            nodes.append(_Node((line,), below, apart))
        apart, i = False, end
    return tuple(nodes)


def _lines(nodes: _Nodes, top: bool = True) -> Body:
    lines: Body = []
    for i, node in enumerate(nodes):
        lines += [""] if node.apart and (i or not top) else []
        for head, below in zip(node.heads, node.below):
            lines += [*head.split("\n"), *(f"    {line}" if line else "" for line in _lines(below))]
    return lines


def _merged(bodies: Sequence[tuple[Setting, _Nodes]], names: Sequence[str], used: dict[str, None]) -> _Nodes:
    """Merges the settings that differ in the last arguments first, those groups then by the first argument."""
    if not names:
        return bodies[0][1]
    name, *others = names
    groups: dict[Any, list[tuple[Setting, _Nodes]]] = {}
    for setting, nodes in bodies:
        groups.setdefault(setting[name], []).append((setting, nodes))
    return _joined(name, [(value, _merged(group, others, used)) for value, group in groups.items()], used)


def _joined(name: str, rows: Sequence[tuple[Any, _Nodes]], used: dict[str, None]) -> _Nodes:
    """The nodes of the values of one argument: those in common, and between them branches."""
    shared = [_key(node) for node in rows[0][1]]
    for _, nodes in rows[1:]:
        shared = _common(shared, [_key(node) for node in nodes])
    left = [(value, list(nodes)) for value, nodes in rows]
    out: list[_Node] = []
    for key in [*shared, None]:
        gaps = []
        for value, rest in left:
            at = next((i for i, node in enumerate(rest) if _key(node) == key), len(rest))
            gaps.append((value, tuple(rest[:at])))
            del rest[:at]
        if any(gap for _, gap in gaps):
            used[name] = None
            out.append(_branch(name, gaps, used))
        if key is not None:
            same = [(value, rest.pop(0)) for value, rest in left]
            below = tuple(
                _joined(name, [(value, node.below[i]) for value, node in same], used) for i in range(len(key))
            )
            out.append(_Node(key, below, any(node.apart for _, node in same)))
    return tuple(out)


def _key(node: _Node) -> tuple[str, ...]:
    return node.heads


def _common(a: list[tuple[str, ...]], b: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A longest common subsequence."""
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            same = 1 + length[i + 1][j + 1] if a[i] == b[j] else 0
            length[i][j] = max(same, length[i + 1][j], length[i][j + 1])
    i = j = 0
    found = []
    while i < len(a) and j < len(b):
        if a[i] == b[j] and length[i][j] == 1 + length[i + 1][j + 1]:
            found.append(a[i])
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def _branch(name: str, rows: Sequence[tuple[Any, _Nodes]], used: dict[str, None]) -> _Node:
    """`if name == value:` with what that value alone does, and so on; values that do the same share a clause.

    One value may stand against all others, whose own differences then come below `else:`, if that is clearly shorter.
    """
    clauses: dict[_Nodes, list[Any]] = {}
    for value, nodes in rows:
        clauses.setdefault(_flush(nodes), []).append(value)
    apart = any(nodes and nodes[0].apart for _, nodes in rows)
    every = [value for value, _ in rows]
    flat = _clauses(name, clauses, every, apart)
    if len(clauses) < 3:
        return flat
    nested = []
    for nodes, values in clauses.items():
        others = [row for row in rows if row[0] not in values]
        below = _flush(_joined(name, others, used))
        nested.append(_clauses(name, {nodes: values, below: [value for value, _ in others]}, every, apart))
    best = min(nested, key=_length)
    return best if _length(best) + _CLEARLY < _length(flat) else flat


def _length(node: _Node) -> int:
    return len(_lines((node,)))


def _clauses(name: str, clauses: dict[_Nodes, list[Any]], every: Sequence[Any], apart: bool) -> _Node:
    order = sorted(clauses.items(), key=lambda row: (not row[0], len(row[1]), row[1] == [False]))
    heads: list[str] = []
    below: list[_Nodes] = []
    for i, (nodes, values) in enumerate(order):
        if not nodes:
            continue
        last = i == len(order) - 1 and i > 0
        heads.append("else:" if last else f"{'elif' if heads else 'if'} {_condition(name, values, every)}:")
        below.append(nodes)
    return _conditional(heads, below) or _Node(tuple(heads), tuple(below), apart)


def _conditional(heads: Sequence[str], below: Sequence[_Nodes]) -> _Node | None:
    """`x = … if condition else None` in one line, where that is all that the clauses do."""
    if len(heads) != 2 or any(len(nodes) != 1 or nodes[0].below != ((),) for nodes in below):
        return None
    texts = [nodes[0].heads[0] for nodes in below]
    name, equals, text = texts[0].partition(" = ")
    if not equals or texts[1] != f"{name} = None" or " if " in text:
        return None
    return _Node((f"{texts[0]} {heads[0].removesuffix(':')} else None",), ((),), False)


def _flush(nodes: _Nodes) -> _Nodes:
    return (_Node(nodes[0].heads, nodes[0].below, False), *nodes[1:]) if nodes else nodes


def _condition(name: str, values: Sequence[Any], every: Sequence[Any]) -> str:
    if values in ([True], [False]):
        return name if values == [True] else f"not {name}"
    others = [value for value in every if value not in values]
    if len(values) > len(others) == 1:
        return f"{name} != {literal(others[0])}"
    return " or ".join(f"{name} == {literal(value)}" for value in values)
