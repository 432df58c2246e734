"""The events of a run in, what is in force out: edits, verdicts, what was applied; and the verdicts that people add."""

import getpass
import shlex

from pathlib import Path
from typing import Any

from liger_dev import journal
from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.runs import Run

Event = dict[str, Any]


def command(root: Path, words: str) -> str:
    """A command line for this workspace, with --root where the working directory would not find it."""
    home, root = Path.cwd().resolve(), root.resolve()
    found = root in (home, *home.parents)
    return f"liger-dev {words}" if found else f"liger-dev {words} --root {shlex.quote(str(root))}"


def effective_key(events: list[Event], key: str) -> str:
    """Where the output of the inputs `key` lies: under the last edit of it, or under `key` itself."""
    edits = [event["key"] for event in events if event["event"] == "edited" and event["of"] == key]
    return edits[-1] if edits else key


def latest_output(events: list[Event], stage: str = "") -> Event | None:
    """The last output event, of any stage or of the one named: {stage, key, mark}."""
    outputs = [event for event in events if event["event"] == "output" and stage in ("", event["stage"])]
    return outputs[-1] if outputs else None


def verdict(events: list[Event], stage: str, mark: str) -> Event | None:
    """The last approval or rejection of exactly this output of a stage."""
    kinds = ("approved", "rejected")
    found = [event for event in events if event["event"] in kinds and _is_about(event, stage, mark)]
    return found[-1] if found else None


def rejection(events: list[Event], except_of: str = "") -> Event | None:
    """A rejection that is in force: the last verdict on some stage's latest output, other than the stage named."""
    stages = dict.fromkeys(event["stage"] for event in events if event["event"] == "output")
    latest = [latest_output(events, stage) for stage in stages if stage != except_of]
    verdicts = [verdict(events, output["stage"], output["mark"]) for output in latest if output]
    return next((found for found in verdicts if found and found["event"] == "rejected"), None)


def is_waiting(events: list[Event], stage: str, mark: str) -> bool:
    """Whether this output was shown for review, and so may be approved."""
    return any(event["event"] == "waiting" and _is_about(event, stage, mark) for event in events)


def is_applied(events: list[Event], stage: str, mark: str) -> bool:
    """Whether this output is what the stage last wrote into the workspace, and nothing was undone since."""
    last = [event for event in events if event["event"] == "undone" or _is_application(event, stage)]
    return bool(last) and last[-1]["event"] == "applied" and _is_about(last[-1], stage, mark)


def limits(events: list[Event]) -> dict[str, Any]:
    """The limits that a resumption was given last, which take the place of the request's."""
    given = [event for event in events if event["event"] == "limits"]
    return {name: value for name, value in given[-1].items() if name not in ("event", "time")} if given else {}


def stale_count(events: list[Event], stage: str) -> int:
    """How often the stage's output was given up since files had changed under it."""
    return sum(event["event"] == "stale" and event["stage"] == stage for event in events)


def approve(run: Run, stage: str, reason: str) -> str:
    """Approves the output that waits, or was rejected (of `stage` if it is not empty); returns the stage's name.

    Raises BadInput if it is neither.
    """
    with run.lock():
        events = run.events()
        output = _reviewable(run, events, stage)
        name, mark = output["stage"], output["mark"]
        current = verdict(events, name, mark)
        is_rejected = current is not None and current["event"] == "rejected"
        if not is_rejected and (current or not is_waiting(events, name, mark)):
            raise BadInput(
                f"stage {name} of run {run.id} does not wait for a review",
                todo=f"see what does: {command(run.root, f'show {run.id}')}",
            )
        run.record(approval(name, mark, "approve command", reason))
    return str(name)


def reject(root: Path, run: Run, stage: str, reason: str) -> tuple[str, list[str]]:
    """Rejects a stage's output and takes back all that the run wrote: the stage's name and the files restored.

    Raises BadInput if the stage has no output yet.
    """
    with run.lock():
        output = _reviewable(run, run.events(), stage)
        run.record({**approval(output["stage"], output["mark"], "reject command", reason), "event": "rejected"})
        return str(output["stage"]), withdraw(root, run)


def withdraw(root: Path, run: Run) -> list[str]:
    """Undoes all that the run applied; repeated after a crash, it finishes the work."""
    workspace.recover(root)
    undone = workspace.undo(root, run.id) if journal.applied(root, run.id) else []
    events = [event["event"] for event in run.events() if event["event"] in ("applied", "undone")]
    if events and events[-1] == "applied":
        run.record({"event": "undone", "files": undone})
    return undone


def approval(stage: str, mark: str, how: str, reason: str) -> Event:
    """The event of an approval: which output (by its hash), by whom, in which way and why. The run adds the time."""
    return {"event": "approved", "stage": stage, "mark": mark, "how": how, "reason": reason, "user": _user()}


def _reviewable(run: Run, events: list[Event], stage: str) -> Event:
    output = latest_output(events, stage)
    if output is None:
        what = f"stage {stage} of run {run.id} has no output yet" if stage else f"run {run.id} has no output yet"
        raise BadInput(what, todo=f"go on with it first: {command(run.root, f'resume {run.id}')}")
    return output


def _is_about(event: Event, stage: str, mark: str) -> bool:
    return bool(event["stage"] == stage and event["mark"] == mark)


def _is_application(event: Event, stage: str) -> bool:
    return bool(event["event"] == "applied" and event["stage"] == stage)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user need not have a name
        return "unknown"
