"""Applies two change sets by turns, or adds lines to a shared file, until it is killed or done.

python looping_child.py ROOT swap CHANGES_A CHANGES_B      for ever
python looping_child.py ROOT lines NAME COUNT              adds COUNT lines, rendering again when overtaken
python looping_child.py ROOT once CHANGES RUN_ID           exit code 0 applied, 9 stale
python looping_child.py ROOT hold LOCK_FILE                holds a lock for ever
"""

import dataclasses
import itertools
import json
import sys
import time

from pathlib import Path

from liger_dev import workspace
from liger_dev.disk import exclusive
from liger_dev.errors import StaleWorkspace
from liger_dev.records import Change
from liger_dev.records import ChangeSet


def ready() -> None:
    print("ready", flush=True)


def rebased(root: Path, changes: ChangeSet) -> ChangeSet:
    return ChangeSet(tuple(dataclasses.replace(c, base=workspace.base_of(root, c.path)) for c in changes.changes))


def change_set(path: str) -> ChangeSet:
    return ChangeSet.from_json(json.loads(Path(path).read_text()))


def swap(root: Path, first: str, second: str) -> None:
    sets = [change_set(first), change_set(second)]
    ready()
    for turn in itertools.count():
        workspace.apply(root, rebased(root, sets[turn % 2]), f"run-{turn % 2}")


def lines(root: Path, name: str, count: str) -> None:
    ready()
    for number in range(int(count)):
        while True:
            base, text = workspace.base_of(root, "kernels/log.txt"), workspace.read(root, "kernels/log.txt")
            change = Change("kernels/log.txt", f"{text or ''}{name} {number}\n", base)
            try:
                workspace.apply(root, ChangeSet((change,)), name)
                break
            except StaleWorkspace:
                continue


def once(root: Path, changes: str, run_id: str) -> None:
    try:
        workspace.apply(root, change_set(changes), run_id)
    except StaleWorkspace:
        sys.exit(9)


def hold(root: Path, lock_file: str) -> None:
    with exclusive(Path(lock_file), "held", seconds=5):
        ready()
        time.sleep(60)


COMMANDS = {"swap": swap, "lines": lines, "once": once, "hold": hold}
COMMANDS[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:])
