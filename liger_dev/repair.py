"""Takes an op file and the kind of its failure, and gives the file with one small edit that may mend it, and why.

A move finds its places in the syntax tree and edits the text there, so that everything else stays byte for byte. It
knows nothing of the op: it changes the schedule or the precision, never a formula.
"""

import ast
import difflib

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Set
from dataclasses import dataclass
from typing import TypeGuard

LOGIC = "kernel logic"
SHAPE = "shape"
DTYPE = "dtype"
TOLERANCE = "tolerance"
COMPILE = "compile"
CRASH = "crash"
TIMEOUT = "timeout"
NO_TESTS = "no tests"
COMPILED_GRAPH = "torch.compile"
WARNING = "warning"
GRADER = "grader"

_LOW_PRECISION = ("float16", "bfloat16", "element_ty")
_FLAT_BLOCK = 256


@dataclass(frozen=True)
class Splice:
    """Replaces the bytes `start` to `end` of a text by `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Repair:
    """A move that was made: `reason` says what it does and why it may help, `diff` shows it."""

    move: str
    reason: str
    text: str
    diff: str


@dataclass(frozen=True)
class Move:
    """A row of the table of moves; `edit` gives no splices where the move does not apply."""

    name: str
    reason: str
    edit: Callable[["OpFile"], list[Splice]]


class OpFile:
    """The text of an op file with its tree. `integers` are names of arguments that hold no floating numbers."""

    def __init__(self, text: str, integers: Set[str] = frozenset()) -> None:
        self.tree = ast.parse(text)
        self.data = text.encode()
        self.integers = integers
        self._lines = [0]
        for line in self.data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None, "a parsed node has an end"
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def kernels(self) -> list[ast.FunctionDef]:
        return [node for node in self.tree.body if isinstance(node, ast.FunctionDef) and _is_jit(node)]

    def host(self) -> Iterator[ast.AST]:
        """Every node outside the kernels."""
        for node in self.tree.body:
            if not (isinstance(node, ast.FunctionDef) and _is_jit(node)):
                yield from ast.walk(node)

    def apply(self, splices: list[Splice]) -> str:
        data = self.data
        for splice in sorted(splices, key=lambda splice: splice.start, reverse=True):
            data = data[: splice.start] + splice.text.encode() + data[splice.end :]
        return data.decode()


def repair(text: str, kind: str, tried: Set[str], integers: Set[str] = frozenset()) -> Repair | None:
    """The first move for `kind` that is not in `tried` and changes the file; None when no such move is left."""
    try:
        op = OpFile(text, integers)
    except SyntaxError:
        return None
    for move in MOVES.get(kind, ()):
        if move.name not in tried:
            edited = op.apply(move.edit(op))
            if edited != text:
                return Repair(move.name, move.reason, edited, unified_diff(text, edited))
    return None


def unified_diff(before: str, after: str, path: str = "op") -> str:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{path} (before)", f"{path} (after)", "", "", 2
    )
    return "\n".join(line.rstrip() for line in lines)


def _is_jit(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).split("(")[0] in ("triton.jit", "jit") for decorator in node.decorator_list)


def _after_assignment(op: OpFile, name: str, statement: str) -> list[Splice]:
    """Puts `statement` behind each assignment of `name` in host code that it does not follow already."""
    splices = []
    for owner in op.host():
        body = getattr(owner, "body", None)
        if not isinstance(owner, ast.FunctionDef | ast.If | ast.With) or not isinstance(body, list):
            continue
        for node, following in zip(body, [*body[1:], None]):
            assigned = isinstance(node, ast.Assign) and any(
                isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
                for target in node.targets
                for part in ast.walk(target)
            )
            # A literal is changed where it stands (`_literal_settings`).
            settled = assigned and isinstance(node.value, ast.Constant) or ast.unparse(node) == statement
            if assigned and not settled and (following is None or ast.unparse(following) != statement):
                splices.append(Splice(op.end(node), op.end(node), f"\n{' ' * node.col_offset}{statement}"))
    return splices


def _literal_settings(op: OpFile, name: str, change: Callable[[int], int]) -> list[Splice]:
    """Changes the number in `name=4` of each launch, and in a constant `name = 4` of the module."""
    splices = []
    for node in op.host():
        value: ast.expr | None = None
        if isinstance(node, ast.keyword) and node.arg == name:
            value = node.value
        elif isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            splices.append(Splice(op.start(value), op.end(value), str(change(value.value))))
    return splices


def _setting(op: OpFile, name: str, statement: str, change: Callable[[int], int]) -> list[Splice]:
    return _literal_settings(op, name, change) + _after_assignment(op, name, statement)


def _one_row(op: OpFile) -> list[Splice]:
    return _setting(op, "BLOCK_ROWS", "BLOCK_ROWS = 1", lambda rows: 1)


def _another_block(op: OpFile) -> list[Splice]:
    columns = _setting(op, "BLOCK_COLS", "BLOCK_COLS *= 2", lambda size: 2 * size)
    return columns or _setting(op, "BLOCK_SIZE", f"BLOCK_SIZE = {_FLAT_BLOCK}", lambda size: _FLAT_BLOCK)


def _fewer_warps(op: OpFile) -> list[Splice]:
    return _setting(op, "num_warps", "num_warps = max(1, num_warps // 2)", lambda warps: max(1, warps // 2))


def _more_warps(op: OpFile) -> list[Splice]:
    # 16 and not 32: a warp has 64 lanes on AMD, and 1024 threads are the limit everywhere.
    return _setting(op, "num_warps", "num_warps = min(16, 2 * num_warps)", lambda warps: min(16, 2 * warps))


def _float32(op: OpFile) -> list[Splice]:
    exact = op.integers | _float32_buffers(op)
    splices = []
    for kernel in op.kernels():
        # `tl.load(...).to(...)` states its type already, whatever the type is.
        converted = {id(node.value) for node in ast.walk(kernel) if isinstance(node, ast.Attribute)}
        for node in ast.walk(kernel):
            if _is_call(node, "tl.load") and id(node) not in converted and _pointer(node) not in exact:
                splices.append(Splice(op.end(node), op.end(node), ".to(tl.float32)"))
            elif _is_call(node, "tl.zeros", "tl.full"):
                splices += _float32_accumulator(op, node)
    return splices


def _float32_accumulator(op: OpFile, node: ast.Call) -> list[Splice]:
    given = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"] or node.args[-1:]
    low = [value for value in given if ast.unparse(value).endswith(_LOW_PRECISION)]
    return [Splice(op.start(value), op.end(value), "tl.float32") for value in low]


def _float32_buffers(op: OpFile) -> set[str]:
    """Names that host code allocates as float32: what is loaded from them needs no conversion."""
    return {
        target.id
        for node in op.host()
        if isinstance(node, ast.Assign)
        and any(isinstance(part, ast.keyword) and ast.unparse(part) == "dtype=torch.float32" for part in ast.walk(node))
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _mask(op: OpFile) -> list[Splice]:
    splices = []
    for kernel in op.kernels():
        assigned = _assignments(kernel)
        for node in ast.walk(kernel):
            if not _is_call(node, "tl.load", "tl.store"):
                continue
            loads = ast.unparse(node.func) == "tl.load"
            masked = len(node.args) > (1 if loads else 2) or any(keyword.arg == "mask" for keyword in node.keywords)
            mask = _mask_for(node, assigned)
            if not masked and mask:
                last = op.end((node.args or [node])[-1])
                splices.append(Splice(last, last, f", mask={mask}" + (", other=0.0" if loads else "")))
    return splices


def _mask_for(node: ast.Call, assigned: dict[str, list[ast.Assign]]) -> str:
    """The mask variable that has the shape of the pointers of `node` and is assigned above it, or nothing."""
    seen: set[str] = set()
    names = _names(node.args[0])
    while names:
        name = names.pop()
        if name not in seen:
            seen.add(name)
            names |= {part for assignment in assigned.get(name, []) for part in _names(assignment.value)}
    rows, cols = "rows" in seen, "cols" in seen
    mask = {(True, False): "row_mask", (False, True): "col_mask"}.get((rows, cols), "mask")
    varies = bool(seen & {"rows", "cols", "offsets"})
    return mask if varies and any(above.lineno < node.lineno for above in assigned.get(mask, [])) else ""


def _assignments(kernel: ast.FunctionDef) -> dict[str, list[ast.Assign]]:
    assigned: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node)
    return assigned


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_call(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in names


def _pointer(node: ast.Call) -> str:
    """The tensor that a load reads: `x` for `tl.load(x_ptr + offsets)`."""
    pointers = sorted(name for name in _names(node.args[0]) if name.endswith("_ptr"))
    return pointers[0].removesuffix("_ptr") if pointers else ""


ONE_ROW = Move(
    "one row a program",
    "a program takes a single row: no value of one row can reach another, and no tile reaches beyond the last row",
    _one_row,
)
FLOAT32 = Move(
    "accumulate in float32",
    "every floating load is widened to float32 and accumulators are float32: rounding happens once, at the store",
    _float32,
)
ANOTHER_BLOCK = Move(
    "another block size",
    "the tile has another power of two of columns: an error that depends on where the block ends moves or vanishes",
    _another_block,
)
MASK = Move(
    "mask every access",
    "every load and store carries the mask of its shape: nothing outside the tensors is read or written",
    _mask,
)
FEWER_WARPS = Move(
    "fewer warps", "half the warps share the tile: fewer threads and less exchange between them", _fewer_warps
)
MORE_WARPS = Move("more warps", "twice the warps share the tile: fewer registers a thread", _more_warps)

MOVES: dict[str, tuple[Move, ...]] = {
    LOGIC: (ONE_ROW, FLOAT32, MASK, ANOTHER_BLOCK),
    SHAPE: (MASK, ONE_ROW, ANOTHER_BLOCK),
    DTYPE: (FLOAT32, ONE_ROW),
    TOLERANCE: (FLOAT32, ONE_ROW),
    COMPILE: (MORE_WARPS, ONE_ROW, FEWER_WARPS),
    CRASH: (MASK, ANOTHER_BLOCK, ONE_ROW),
    TIMEOUT: (ONE_ROW, ANOTHER_BLOCK),
    # What schedule and precision have no part in.
    NO_TESTS: (),
    COMPILED_GRAPH: (),
    WARNING: (),
}
