"""Paths and bytes in, files that survive a kill or a power loss out; and locks that name their holder."""

import contextlib
import fcntl
import os
import stat
import time

from collections.abc import Iterator
from pathlib import Path

from liger_dev.errors import BadInput

_POLL_SECONDS = 0.02


def temporary(path: Path) -> Path:
    """The name under which a file's new content is written before it takes the file's place."""
    return path.with_name(f".{path.name}.liger-dev-tmp")


def write_synced(path: Path, data: bytes, like: Path | None = None) -> None:
    """Writes `path` anew and waits until it is on the disk; takes over the mode of `like` if that exists."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if like is not None and like.exists():
            os.fchmod(descriptor, stat.S_IMODE(like.stat().st_mode))
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Gives `path` new content in one step: a reader, also after a kill, sees the old bytes or the new ones."""
    make_folder(path.parent)
    write_synced(temporary(path), data, like=path)
    os.replace(temporary(path), path)
    sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Adds a line to a log and syncs it; a last line that a kill has torn is closed first, and stays as it is."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        _write_all(descriptor, (b"\n" if torn else b"") + line + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_folder(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def make_folder(path: Path) -> None:
    """Makes a folder and its parents, each known to the disk before something is put into it."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Waits until the names in a folder (new, replaced, removed) are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def disk_errors(todo: str) -> Iterator[None]:
    """Turns what the system refuses (permission, space, a read-only disk) into BadInput that names the file."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or ""
        raise BadInput(f"the disk refused: {error.strerror or error}", str(where), todo) from error


@contextlib.contextmanager
def exclusive(path: Path, busy: str, seconds: float) -> Iterator[None]:
    """Holds the lock file `path`, which the kernel frees when the process ends in whatever way.

    Waits up to `seconds`; then raises BadInput: `busy`, and the pid that holds it. The file stays where it is,
    since removing it would let two processes hold two files of one name.
    """
    todo = "make the folder writable and lockable, or choose another one with --root"
    with disk_errors(todo):
        make_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with disk_errors(todo):
            _wait_for(descriptor, path, busy, seconds)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, path: Path, busy: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() >= deadline:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
            raise BadInput(
                f"{busy} by pid {holder}", str(path), f"wait for process {holder} to end, or stop it, then run again"
            )
        time.sleep(_POLL_SECONDS)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock file `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
