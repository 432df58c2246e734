"""Runs one workspace command once for each point at which it can be killed, each time on a fresh copy of a workspace.

    python killed_child.py ROOT COPIES COMMAND CHANGES_JSON RUN_ID kill|full

COMMAND is apply, recover, undo or store. A point lies before and after each system call that changes the disk, and
in the middle of each write. With `kill` the process (a fork for each point) is gone at its point by SIGKILL; with
`full` it lives, and the call behind the point finds no space on the disk. The copies are COPIES/0, COPIES/1, …
"""

import errno
import itertools
import json
import os
import shutil
import signal
import sys

from pathlib import Path

from liger_dev import runs
from liger_dev import workspace
from liger_dev.errors import LigerDevError
from liger_dev.records import ChangeSet

CALLS = ("replace", "rename", "unlink", "mkdir", "rmdir", "fsync", "write", "pwrite", "ftruncate", "fchmod")
ENDED_WELL, FAILED, BEYOND = 0, 2, 7
reached: list[int] = []


def arm(last: int, end: str) -> None:
    points = itertools.count()

    def point(is_before: bool) -> None:
        if next(points) != last:
            return
        reached.append(last)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif is_before:
            raise OSError(errno.ENOSPC, "No space left on device")

    def wrapped(name):
        real = getattr(os, name)

        def call(*args, **kwargs):
            if name == "write" and len(args[1]) > 1:
                half = real(args[0], args[1][: len(args[1]) // 2])
                point(is_before=True)
                return half
            point(is_before=True)
            result = real(*args, **kwargs)
            point(is_before=False)
            return result

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))


def command(root: Path, name: str, changes: ChangeSet, run_id: str) -> None:
    match name:
        case "apply":
            workspace.apply(root, changes, run_id)
        case "recover":
            workspace.recover(root)
        case "undo":
            workspace.undo(root, run_id)
        case "store":
            run = runs.Run(root, run_id)
            run.record({"event": "output", "stage": "analyzer"})
            run.store("a" * 64, {"text": "new"})


def attempt(root: Path, name: str, changes: ChangeSet, run_id: str, last: int, end: str) -> int:
    arm(last, end)
    try:
        command(root, name, changes, run_id)
    except LigerDevError:
        return FAILED
    return ENDED_WELL if reached else BEYOND


def main() -> None:
    root, copies, name, changes_file, run_id, end = sys.argv[1:]
    changes = ChangeSet.from_json(json.loads(Path(changes_file).read_text()))
    for last in itertools.count():
        copy = Path(copies) / str(last)
        shutil.copytree(root, copy)
        process = os.fork()
        if process == 0:
            os._exit(attempt(copy, name, changes, run_id, last, end))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code == BEYOND:
            shutil.rmtree(copy)
            return
        assert code in ((-signal.SIGKILL,) if end == "kill" else (ENDED_WELL, FAILED)), (
            f"point {last}: exit code {code}"
        )


main()
