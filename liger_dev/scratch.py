"""Takes a workspace and a kernel's name, and gives a copy to run it in, with hashes that tell whether a run changed it."""

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from liger_dev.errors import BadInput

_SHARED = (
    "pyproject.toml",
    "test/__init__.py",
    "test/utils.py",
    "test/kernels/__init__.py",
    "test/kernels/conftest.py",
)
_FOLDERS = ("kernels", "benchmark/scripts")
_PYTEST_INI = "[pytest]\npythonpath = .\n"


@dataclass(frozen=True)
class KernelCopy:
    """A kernel in a scratch copy of its workspace.

    `root` is the real workspace, `tree` the copy (nothing may write there but the validator), `out` holds a
    folder for each child. Paths of files are relative and the same in `root` and `tree`.
    """

    name: str
    root: Path
    tree: Path
    out: Path

    @property
    def op(self) -> str:
        return f"kernels/ops/{self.name}.py"

    @property
    def test(self) -> str:
        return f"test/kernels/test_{self.name}.py"

    @property
    def reference(self) -> str:
        return f"kernels/reference/{self.name}.py"

    @property
    def profile(self) -> str:
        return f"profiles/{self.name}.yaml"

    @property
    def benchmark(self) -> str:
        return f"benchmark/scripts/benchmark_{self.name}.py"

    @property
    def python_files(self) -> tuple[str, ...]:
        return tuple(path for path in kernel_files(self.name) if path.endswith(".py"))

    @property
    def locked(self) -> tuple[str, ...]:
        """What a repair may not touch: the test, its tolerances, the reference, the profile, the benchmark."""
        return (self.test, self.reference, self.profile, self.benchmark, *_SHARED)

    def text(self, path: str) -> str:
        return (self.tree / path).read_text()

    def folder(self) -> Path:
        """A new empty folder for one child. None is used twice: Python imports from its working directory first, and
        what a candidate leaves there would be the next child's pytest."""
        folder = self.out / secrets.token_hex(8)
        folder.mkdir()
        return folder


def kernel_files(name: str) -> tuple[str, ...]:
    """The files that make up a kernel, relative to the workspace."""
    return (
        f"kernels/ops/{name}.py",
        f"kernels/modules/{name}.py",
        "kernels/functional.py",
        f"kernels/reference/{name}.py",
        f"test/kernels/test_{name}.py",
        f"benchmark/scripts/benchmark_{name}.py",
        f"profiles/{name}.yaml",
    )


@contextlib.contextmanager
def kernel_copy(name: str, root: Path) -> Iterator[KernelCopy]:
    """A copy of what the kernel needs, under `.liger-dev/scratch/`, removed at the end. Raises BadInput if a file lacks."""
    check_files(name, root)
    with own_folder(root, f"validate-{name}") as scratch:
        copy = KernelCopy(name, root.resolve(), scratch.resolve() / "tree", scratch.resolve() / "out")
        copy.out.mkdir()
        for folder in _FOLDERS:
            shutil.copytree(root / folder, copy.tree / folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        for path in (*_SHARED, copy.test, copy.profile):
            if (root / path).is_file():
                (copy.tree / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, copy.tree / path)
        if not (copy.tree / "pyproject.toml").exists():
            # Without a configuration of its own, pytest would search the folders above and take another's.
            (copy.tree / "pytest.ini").write_text(_PYTEST_INI)
        yield copy


@contextlib.contextmanager
def own_folder(root: Path, name: str) -> Iterator[Path]:
    """A new scratch folder of the workspace `root`, removed at the end.

    Those that killed processes have left go too: nobody holds their lock.
    """
    parent = root / ".liger-dev" / "scratch"
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / f"{name}-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as own:
        with _locked(parent):
            for old in parent.iterdir():
                with contextlib.suppress(BlockingIOError, FileNotFoundError), _locked(old, fcntl.LOCK_NB):
                    shutil.rmtree(old, ignore_errors=True)
            folder.mkdir()
            own.enter_context(_locked(folder))
        own.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextlib.contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[None]:
    """Raises BlockingIOError where another holds the lock and `how` is not to wait."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(handle)


def check_files(name: str, root: Path) -> None:
    """Raises BadInput that names the first file which the kernel lacks, or says that `name` is no kernel's name."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadInput(f"'{name}' is no kernel's name", "NAME", "use lower-case letters, digits and underscores")
    for path in kernel_files(name):
        if not (root / path).is_file():
            raise BadInput(f"the kernel '{name}' has no file {path}", str(root), f"run `liger-dev generate {name}`")


def hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every file under `folder`, by relative path; links are not followed but hashed by their target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path.relative_to(folder).as_posix()] = f"-> {path.readlink()}"
        elif path.is_file():
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def locked_hashes(copy: KernelCopy) -> dict[str, str]:
    """The sha256 of what no run may change in the workspace itself: the kernel's test, tolerances, reference and profile,
    what was measured and graded of it before, and its rows of each table."""
    paths = [copy.root / path for path in copy.locked]
    paths += sorted((copy.root / "benchmark").rglob(f"{copy.name}.*"))
    found = {path: path.read_bytes() for path in paths if path.is_file()}
    for table in sorted((copy.root / "benchmark" / "data").glob("*.csv")):
        # Another kernel may be measured meanwhile.
        own = f"{copy.name},".encode()
        found[table] = b"".join(line for line in table.read_bytes().splitlines(True) if line.startswith(own))
    return {path.relative_to(copy.root).as_posix(): hashlib.sha256(data).hexdigest() for path, data in found.items()}


def differences(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))
