"""A folder of references in, a row a file out: whether the compiler expresses it, or which node it refuses and why."""

import ast
import json
import queue
import re
import threading
import time

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from liger_dev import analyzer
from liger_dev import sources
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.errors import Unsupported
from liger_dev.sandbox import Limits

if TYPE_CHECKING:
    from rich.table import Table

COMPILED, VERIFIED, WRONG, REFUSED, ERROR = "compiled", "verified", "wrong", "refused", "error"

_AT_ONCE = 2
_COLOURS = {COMPILED: "green", VERIFIED: "green", WRONG: "bold red", ERROR: "red"}
_NODE = re.compile(r"(?:<built-in function )?(?P<node>[\w.]+)>? is not supported: (?P<reason>.*)\Z", re.DOTALL)
_WORD = re.compile(r"\w+")
# The exported graph counts its inputs.
_INPUT = re.compile(r"tensors_\d+\Z")


@dataclass(frozen=True)
class Row:
    """What became of one file. `node`, `reason` and `where` are empty unless it was refused or failed.

    `node` is the operation of the graph that was refused, `group` a refusal's name without the file's own names,
    `seconds` the child's wall-clock time.
    """

    kernel: str
    file: str
    tier: int | None
    verdict: str
    seconds: float
    node: str = ""
    reason: str = ""
    where: str = ""
    group: str = ""

    @property
    def good(self) -> bool:
        return self.verdict in (COMPILED, VERIFIED)

    @property
    def words(self) -> str:
        """The verdict with its reason on one line."""
        said = ": ".join(part for part in (self.node, self.reason) if part)
        return " ".join(
            f"{self.verdict}{': ' + said if said else ''}{f' [{self.where}]' if self.where else ''}".split()
        )


def reference_files(path: Path) -> list[Path]:
    """The reference files of a folder, or the one file. Raises BadInput if there is none."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.glob("*.py") if not file.name.startswith("_")) if path.is_dir() else []
    if not found:
        what = "the folder has no Python file" if path.is_dir() else "there is no such folder"
        raise BadInput(what, str(path), "name a folder of reference files")
    return found


def cover(files: Sequence[Path], *, run: bool, limits: Limits, say: Callable[[str], None] = print) -> list[Row]:
    """One row a file, in their order; two files are compiled at once.

    Args:
        run: also execute the emitted op in Triton's interpreter and compare it with the reference in float64.
        limits: of each file's child.
        say: told a line for each file that is done.

    Raises:
        BadInput: a file can't be read.
    """
    texts = [(file, _read(file)) for file in files]
    todo: "queue.SimpleQueue[tuple[Path, str]]" = queue.SimpleQueue()
    done: "queue.SimpleQueue[Row | BaseException]" = queue.SimpleQueue()
    for item in texts:
        todo.put(item)
    for _ in range(min(_AT_ONCE, len(texts))):
        # Daemons: after an interrupt nobody waits for them, and their children end with this process.
        threading.Thread(target=_work, args=(todo, done, run, limits), daemon=True).start()
    rows: dict[str, Row] = {}
    while len(rows) < len(texts):
        row = done.get()
        if isinstance(row, BaseException):
            raise row
        rows[row.file] = row
        say(f"{len(rows)}/{len(texts)} {row.kernel}: {row.verdict}")
    return [rows[str(file)] for file in files]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the file can't be read: {error.strerror}", str(file), "check its permissions") from None
    except UnicodeDecodeError as error:
        raise BadInput("the file is not UTF-8", f"{file}, byte {error.start}", "save it as UTF-8") from None


def _work(todo: Any, done: Any, run: bool, limits: Limits) -> None:
    """A thread's work: files until there are none left. What goes wrong is the other thread's to raise."""
    try:
        while True:
            file, text = todo.get_nowait()
            done.put(_row(file, text, run, limits))
    except queue.Empty:
        return
    except BaseException as bug:
        done.put(bug)


def _row(file: Path, text: str, run: bool, limits: Limits) -> Row:
    start = time.monotonic()
    kernel = _kernel_name(file)
    row = Row(kernel, str(file), None, ERROR, 0.0)
    try:
        entry = _entry(file, text)
        source = sources.resolve(kernel, f"{file}:{entry}" if entry else str(file), shapes={}, init=[], cwd=Path.cwd())
        reply = analyzer.cover_in_child(kernel, source, run=run, limits=limits)
    except LigerDevError as error:
        row = _failed(row, error, text)
    else:
        row = _compiled(row, reply)
    return replace(row, seconds=round(time.monotonic() - start, 1))


def _kernel_name(file: Path) -> str:
    """A file's name as an operation's: `19_ReLU.py` is relu."""
    name = re.sub(r"\W+", "_", file.stem.lower()).lstrip("0123456789_")
    return name if re.match(r"[a-z]", name) else "operation"


def _entry(file: Path, text: str) -> str:
    """The function of the file's own name, or KernelBench's `Model`; empty if there is neither."""
    try:
        names = {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    except (SyntaxError, ValueError):
        return ""
    return next((name for name in (file.stem, "Model") if name in names), "")


def _compiled(row: Row, reply: dict[str, Any]) -> Row:
    verdict = {None: COMPILED, "": VERIFIED}.get(reply["disagreement"], WRONG)
    return replace(row, tier=reply["tier"], verdict=verdict, reason=reply["disagreement"] or "")


def _failed(row: Row, error: LigerDevError, text: str) -> Row:
    refused = isinstance(error, Unsupported)
    match = _NODE.match(error.what) if refused else None
    node, reason = (match["node"], match["reason"]) if match else ("", error.what)
    group = type(error).__name__
    if refused:
        group = _generic(reason, text) if not node or _INPUT.match(node) else node
    return replace(row, verdict=REFUSED if refused else ERROR, node=node, reason=reason, where=error.where, group=group)


def _generic(reason: str, text: str) -> str:
    """A reason up to its colon, the file's own names left out, so that the same refusal has the same words."""
    own: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "SHAPES" for t in node.targets):
            strings = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            own |= {value for value in strings if isinstance(value, str)}
    words = _WORD.sub(lambda match: "_" if match[0] in own else match[0], reason.partition(":")[0])
    return re.sub(r"_(, _)+", "_", re.sub(r"\d[\d.e+-]*", "n", words))


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as aligned lines: kernel, tier, seconds, and the verdict with its reason."""
    width = max((len(row.kernel) for row in rows), default=0)
    head = f"{'kernel':{width}}  tier  seconds  verdict"
    lines = [f"{r.kernel:{width}}  {r.tier or '-':>4}  {r.seconds:7.1f}  {r.words}" for r in rows]
    return [head, *lines]


def rich_table(rows: Sequence[Row]) -> "Table":
    """The rows for a terminal, which wraps reasons in their column."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)
    for title in ("kernel", "tier", "seconds", "verdict"):
        drawn.add_column(title, justify="right" if title in ("tier", "seconds") else "left", no_wrap=title == "kernel")
    for row in rows:
        drawn.add_row(
            row.kernel, str(row.tier or "-"), f"{row.seconds:.1f}", Text(row.words, style=_COLOURS.get(row.verdict, ""))
        )
    return drawn


def summary(rows: Sequence[Row]) -> list[str]:
    """How many were compiled, then refusals and failures by group, the largest first."""
    good = sum(row.good for row in rows)
    verb = VERIFIED if any(row.verdict in (VERIFIED, WRONG) for row in rows) else COMPILED
    lines = [f"{good} {verb} of {len(rows)}"]
    for verdict in (WRONG, REFUSED, ERROR):
        groups: dict[str, list[str]] = {}
        for row in rows:
            if row.verdict == verdict:
                groups.setdefault(row.group, []).append(row.kernel)
        counted = Counter({group: len(kernels) for group, kernels in groups.items()})
        for group, count in counted.most_common():
            lines.append(f"  {count:3} {verdict}{': ' + group if group else ''} ({', '.join(groups[group])})")
    return lines


def to_json(rows: Sequence[Row]) -> str:
    """All rows and the counts of their verdicts, as the text of a JSON file."""
    counts = dict(sorted(Counter(row.verdict for row in rows).items()))
    return json.dumps({"counts": counts, "rows": [asdict(row) for row in rows]}, indent=2) + "\n"
