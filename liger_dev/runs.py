"""A request in, a run's folder out: what was asked, stage outputs by key, the log of events, and one driver's lock."""

import contextlib
import json
import os
import re
import secrets

from dataclasses import dataclass
from datetime import datetime
from datetime import timezone
from pathlib import Path
from typing import Any

from liger_dev.disk import append_line
from liger_dev.disk import disk_errors
from liger_dev.disk import exclusive
from liger_dev.disk import is_held
from liger_dev.disk import make_folder
from liger_dev.disk import replace_file
from liger_dev.disk import sync_folder
from liger_dev.disk import write_synced
from liger_dev.errors import BadInput
from liger_dev.journal import STATE
from liger_dev.records import digest

# What an event makes of a run. Events that are not here (edited, undone, …) leave its state as it is.
_STATES = {
    "stage": "running",
    "output": "running",
    "applied": "running",
    "stale": "running",
    "waiting": "paused",
    "approved": "approved",
    "rejected": "rejected",
    "finished": "passed",
    "failed": "failed",
    "interrupted": "interrupted",
}
_TODO = "mend this (permission, space) and `liger-dev resume` the run"


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands.

    `state` is running, paused, passed, failed, rejected or interrupted; `stage` the last stage that an event named;
    `reason` what the last change of state gave as its reason; `time` (UTC, ISO 8601) that of the last event.
    """

    state: str
    stage: str
    reason: str
    time: str


@dataclass(frozen=True)
class Run:
    """A run by its id: a view of `ROOT/.liger-dev/runs/ID`, which holds everything it knows."""

    root: Path
    id: str

    @property
    def folder(self) -> Path:
        return _runs_folder(self.root) / self.id

    @property
    def request(self) -> dict[str, Any]:
        """What was asked for, as given to `create_run`."""
        request: dict[str, Any] = self._header()["request"]
        return request

    @property
    def created(self) -> str:
        """When the run was made (UTC, ISO 8601 with microseconds)."""
        return str(self._header()["created"])

    def record(self, event: dict[str, Any]) -> None:
        """Appends an event to the log, with the time. `event` says what happened; `stage` and `reason` are optional.

        Output, applied, stale, waiting, approved, rejected, finished, failed and interrupted set the run's state.
        """
        assert "event" in event and "time" not in event, f"an event has a name, and its time is set here: {event}"
        with disk_errors(_TODO):
            append_line(self.folder / "events.jsonl", json.dumps({"time": _now(), **event}).encode())

    def events(self) -> list[dict[str, Any]]:
        """All events, oldest first. A line that a kill has torn counts as not written."""
        try:
            lines = (self.folder / "events.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [event for event in map(_parsed, lines) if event is not None]

    def load(self, key: str) -> dict[str, Any] | None:
        """A stage's output; None if it was never stored, or is damaged, so that the stage has to run again."""
        try:
            data = _parsed(self._output(key).read_bytes())
        except FileNotFoundError:
            return None
        if data is None or not isinstance(data.get("output"), dict):
            return None
        output: dict[str, Any] = data["output"]
        return output if data.get("hash") == _hash(output) else None

    def store(self, key: str, value: dict[str, Any]) -> None:
        """Keeps a stage's output under the hash of its inputs, in one step; a later value takes an earlier one's place."""
        output = json.loads(json.dumps(value))
        with disk_errors(_TODO):
            replace_file(self._output(key), json.dumps({"hash": _hash(output), "output": output}, indent=1).encode())

    def write_artifact(self, name: str, text: str) -> Path:
        """Writes a file for people into the run's folder (`report.md`, `transcripts/analyzer.jsonl`), in one step."""
        path = self.folder / name
        parts = path.relative_to(self.folder).parts
        assert ".." not in parts and parts[0] not in ("run.json", "events.jsonl", "stages", "lock"), (
            f"{name!r} is taken"
        )
        with disk_errors(_TODO):
            replace_file(path, text.encode())
        return path

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Makes this process the run's one driver. Raises BadInput with the other's pid if there is one."""
        # A second, since `status` in another process takes the lock for a moment to see whether it is held.
        return exclusive(self.folder / "lock", f"run {self.id} is being driven", seconds=1.0)

    def status(self) -> RunStatus:
        """Where the run stands; a run that was running and has no living driver is interrupted."""
        state, stage, reason, time = "running", "", "", self.created
        for event in self.events():
            time = event["time"]
            stage = event.get("stage") or stage
            if event["event"] in _STATES:
                state, reason = _STATES[event["event"]], event.get("reason") or ""
        is_driven = is_held(self.folder / "lock")
        if state == "approved":
            state = "running" if is_driven else "paused"
        elif state == "running" and not is_driven:
            state, reason = "interrupted", "its process ended without a word"
        return RunStatus(state, stage, reason, time)

    def _header(self) -> dict[str, Any]:
        path = self.folder / "run.json"
        with disk_errors("remove the run's folder and start anew"):
            header = _parsed(path.read_bytes())
        if header is None or not {"request", "created"} <= header.keys():
            raise BadInput(f"run {self.id} is damaged", str(path), "remove the run's folder and start anew")
        return header

    def _output(self, key: str) -> Path:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", key), f"{key!r} is no key"
        return self.folder / "stages" / key / "output.json"


def create_run(root: Path, request: dict[str, Any]) -> Run:
    """A new run whose id tells its time (UTC) and the request's `name`: `20260131-142530-rms_norm-1f3c`."""
    runs = _runs_folder(root)
    created = _now()
    stamp = re.sub(r"[-:]", "", created[:19]).replace("T", "-")
    name = re.sub(r"[^A-Za-z0-9_]+", "_", str(request.get("name", ""))).strip("_")[:40] or "run"
    header = json.dumps({"created": created, "request": request}, indent=1).encode()
    with disk_errors("make the workspace's folder writable, or name another one with --root"):
        while True:
            run = Run(root, f"{stamp}-{name}-{secrets.token_hex(2)}")
            draft = runs / f".{run.id}"
            make_folder(draft)
            write_synced(draft / "run.json", header)
            sync_folder(draft)
            if not run.folder.exists():
                os.rename(draft, run.folder)
                sync_folder(runs)
                return run


def open_run(root: Path, id_or_prefix: str) -> Run:
    """The run with this id, or the only one whose id begins so. Raises BadInput that lists the candidates."""
    runs = list_runs(root)
    matches = [run for run in runs if run.id == id_or_prefix] or [
        run for run in runs if run.id.startswith(id_or_prefix)
    ]
    if len(matches) == 1:
        return matches[0]
    what = f"{len(matches)} runs begin with {id_or_prefix!r}" if matches else f"there is no run {id_or_prefix!r}"
    candidates = ", ".join(run.id for run in (matches or runs)[:8])
    todo = f"name one of: {candidates}" if candidates else "start one with `liger-dev new NAME`"
    raise BadInput(what, str(_runs_folder(root)), todo)


def list_runs(root: Path) -> list[Run]:
    """All runs of a workspace, newest first."""
    found = [Run(root, path.parent.name) for path in _runs_folder(root).glob("*/run.json")]
    runs = [run for run in found if not run.id.startswith(".")]
    return sorted(runs, key=lambda run: (run.created, run.id), reverse=True)


def _runs_folder(root: Path) -> Path:
    return root / STATE / "runs"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def _hash(output: dict[str, Any]) -> str:
    return digest(json.dumps(output, sort_keys=True))


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object in a line of JSON, None if the line is torn."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
