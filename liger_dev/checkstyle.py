"""Takes a kernel's files in a scratch copy, has ruff check and mend them, and gives the state before and after."""

import json
import subprocess
import sys

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liger_dev.errors import BadInput

_SECONDS = 60
# A reference is somebody's own text, kept to the letter: an unused import or a variable called l is no fault of a kernel.
_REFERENCES = 'lint.extend-per-file-ignores = {"kernels/reference/*" = ["E", "F"]}'


@dataclass(frozen=True)
class Violation:
    """One finding of `ruff check`; `path` is relative to the workspace."""

    path: str
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.code} {self.message}"


@dataclass(frozen=True)
class StyleState:
    """What ruff says of the files at one moment: findings of the linter, and files that the formatter would change."""

    violations: tuple[Violation, ...]
    unformatted: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.violations and not self.unformatted


@dataclass(frozen=True)
class Checkstyle:
    """The verdict: `before` as found, `after` the automatic fix, and the files that the fix changed."""

    before: StyleState
    after: StyleState
    fixed: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.after.clean


def checkstyle(copy: Path, root: Path, paths: Sequence[str], locked: Sequence[str]) -> Checkstyle:
    """Checks `paths` (relative to `copy`), mends what ruff can mend, and checks again.

    Files in `locked` (tests, the reference) are formatted and their imports sorted, nothing else: a fix that removes
    a statement could change what a test says. `root` is the real workspace; it tells ruff which packages are local.
    """
    texts = {path: (copy / path).read_bytes() for path in paths}
    before = _state(copy, root, paths)
    after = before
    if not before.clean:
        _fix(copy, root, [path for path in paths if path not in locked], ())
        _fix(copy, root, [path for path in paths if path in locked], ("--select", "I"))
        after = _state(copy, root, paths)
    fixed = tuple(path for path in paths if (copy / path).read_bytes() != texts[path])
    return Checkstyle(before, after, fixed)


def _state(copy: Path, root: Path, paths: Sequence[str]) -> StyleState:
    found = _ruff(copy, root, "check", ("--output-format", "json"), paths)
    violations = tuple(sorted((_violation(copy, row) for row in json.loads(found.stdout)), key=str))
    unformatted = tuple(path for path in paths if _ruff(copy, root, "format", ("--check",), [path]).returncode == 1)
    return StyleState(violations, unformatted)


def _violation(copy: Path, row: dict[str, Any]) -> Violation:
    path = Path(row["filename"]).resolve().relative_to(copy.resolve()).as_posix()
    return Violation(path, row["location"]["row"], row["code"] or "invalid-syntax", row["message"])


def _fix(copy: Path, root: Path, paths: Sequence[str], options: Sequence[str]) -> None:
    if paths:
        _ruff(copy, root, "check", ("--fix", *options), paths)
        _ruff(copy, root, "format", (), paths)


def _ruff(
    copy: Path, root: Path, command: str, options: Sequence[str], paths: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    # A copy holds a part of the workspace: without the root, a package that was not copied would count as third-party
    # and its imports would be sorted into another section than in the workspace.
    local = json.dumps([str(copy), str(root), str(root / "src")])
    config = ["--config", f"src = {local}", "--config", _REFERENCES]
    argv = [sys.executable, "-m", "ruff", command, "--no-cache", "--quiet", *config]
    done = subprocess.run([*argv, *options, *paths], cwd=copy, capture_output=True, text=True, timeout=_SECONDS)
    # Ruff answers 0 (clean), 1 (findings) or 2 (it could not work); a file that does not parse is 2 for the formatter
    # and an ordinary finding for the linter.
    if done.returncode > 1 and command == "check":
        raise BadInput(f"ruff failed: {done.stderr.strip()}", "checkstyle", "run `liger-dev doctor`")
    return done
