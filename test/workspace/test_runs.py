"""Runs on a real disk: ids, stage outputs, the event log, the driver's lock and the state that events add up to."""

import os
import re

import pytest

from workspace_cases import change_set
from workspace_cases import points
from workspace_cases import saved

from liger_dev import runs
from liger_dev.errors import BadInput

KEY = "a" * 64


@pytest.fixture
def run(root):
    return runs.create_run(root, {"name": "rms_norm", "engine": "builtin"})


def test_an_id_tells_time_and_name(run):
    assert re.fullmatch(r"\d{8}-\d{6}-rms_norm-[0-9a-f]{4}", run.id)
    assert run.request == {"name": "rms_norm", "engine": "builtin"}
    assert run.folder.is_dir()


def test_a_hostile_name_stays_a_name(root):
    run = runs.create_run(root, {"name": "../../x y"})
    assert run.folder.parent == root / ".liger-dev/runs"
    assert runs.open_run(root, run.id) == run


def test_runs_are_listed_newest_first(root):
    made = [runs.create_run(root, {"name": name}) for name in ("b", "c", "a")]
    assert runs.list_runs(root) == made[::-1]


def test_a_folder_that_is_no_run_is_not_listed(root, run):
    (root / ".liger-dev/runs/.20260101-000000-half-0000").mkdir()
    (root / ".liger-dev/runs/.20260101-000000-half-0000/run.json").write_text("{")
    (root / ".liger-dev/runs/elsewhere").mkdir()
    assert runs.list_runs(root) == [run]


def test_no_runs(root):
    assert runs.list_runs(root) == []
    with pytest.raises(BadInput, match="liger-dev new"):
        runs.open_run(root, "2026")


def test_open_by_prefix(root, run):
    assert runs.open_run(root, run.id[:-2]) == run
    other = runs.create_run(root, {"name": "rms_norm"})
    with pytest.raises(BadInput) as refused:
        runs.open_run(root, run.id[:4])
    assert run.id in refused.value.todo and other.id in refused.value.todo
    with pytest.raises(BadInput) as refused:
        runs.open_run(root, "../../etc")
    assert run.id in refused.value.todo


def test_a_stored_output_comes_back(run):
    value = {"text": "α\n", "numbers": [1, 2.5, None, True], "torn": "\udc80", "shape": ("B", 4)}
    assert run.load(KEY) is None
    run.store(KEY, value)
    assert run.load(KEY) == {**value, "shape": ["B", 4]}
    run.store(KEY, {"text": "later"})
    assert run.load(KEY) == {"text": "later"}


@pytest.mark.parametrize("damage", ["cut", "swapped", "empty", "list", "binary"])
def test_a_damaged_output_counts_as_absent(run, damage):
    run.store(KEY, {"text": "right"})
    path = run.folder / "stages" / KEY / "output.json"
    raw = path.read_bytes()
    wrong = {
        "cut": raw[:-9],
        "swapped": raw.replace(b"right", b"wrong"),
        "empty": b"",
        "list": b"[]",
        "binary": b"\xff",
    }
    path.write_bytes(wrong[damage])
    assert run.load(KEY) is None
    run.store(KEY, {"text": "right"})
    assert run.load(KEY) == {"text": "right"}


def test_events_come_back_in_order_with_their_time(run):
    run.record({"event": "output", "stage": "analyzer"})
    run.record({"event": "approved", "reason": "grün"})
    first, second = run.events()
    assert (first["event"], second["reason"]) == ("output", "grün")
    assert run.created < first["time"] < second["time"]


def test_a_torn_last_line_is_passed_over_and_not_written_on(run):
    run.record({"event": "output"})
    with (run.folder / "events.jsonl").open("ab") as log:
        log.write(b'{"time": "2026", "event": "appro')
    assert [event["event"] for event in run.events()] == ["output"]
    run.record({"event": "waiting"})
    assert [event["event"] for event in run.events()] == ["output", "waiting"]


def test_store_and_record_killed_anywhere(root, tmp_path, run):
    run.record({"event": "output", "stage": "first"})
    run.store(KEY, {"text": "old"})
    unused = saved(tmp_path / "none.json", change_set(root, {}))
    seen = []
    for copy in points(root, "store", unused, run.id):
        there = runs.Run(copy, run.id)
        seen.append(there.load(KEY)["text"])
        assert {event["event"] for event in there.events()} == {"output"}
        there.record({"event": "waiting", "stage": "next"})
        assert there.events()[-1]["stage"] == "next"
    assert set(seen) == {"old", "new"} and seen == sorted(seen, reverse=True)
    assert len(seen) > 12


def test_one_driver_at_a_time(run, looping):
    driver = looping(run.root, "hold", run.folder / "lock")
    with pytest.raises(BadInput, match=f"run {run.id} is being driven by pid {driver.pid}"):
        with run.lock():
            pytest.fail("two drivers")
    driver.kill()
    driver.wait()
    with run.lock():
        assert (run.folder / "lock").read_text() == str(os.getpid())


def test_artifacts(run):
    path = run.write_artifact("transcripts/analyzer.md", "# α\n")
    assert path == run.folder / "transcripts/analyzer.md" and path.read_text() == "# α\n"
    for name in ("../x", "events.jsonl", "/tmp/x"):
        with pytest.raises((AssertionError, ValueError)):
            run.write_artifact(name, "")


@pytest.mark.parametrize(
    "names, state",
    [
        ((), "interrupted"),
        (("output",), "interrupted"),
        (("output", "waiting"), "paused"),
        (("output", "waiting", "approved"), "paused"),
        (("output", "waiting", "approved", "applied"), "interrupted"),
        (("output", "waiting", "rejected", "undone"), "rejected"),
        (("output", "waiting", "rejected", "approved"), "paused"),
        (("output", "failed"), "failed"),
        (("output", "interrupted"), "interrupted"),
        (("output", "waiting", "approved", "finished"), "passed"),
    ],
)
def test_the_state_follows_from_the_events(run, names, state):
    for name in names:
        run.record({"event": name, "stage": "generator", "reason": f"why {name}"})
    status = run.status()
    assert status.state == state
    assert status.stage == ("generator" if names else "")
    assert state != "failed" or status.reason == "why failed"


def test_a_driven_run_is_running(run, looping):
    run.record({"event": "output", "stage": "analyzer"})
    looping(run.root, "hold", run.folder / "lock")
    assert run.status().state == "running"


def test_a_damaged_run_says_so(root, run):
    (run.folder / "run.json").write_text("{")
    with pytest.raises(BadInput, match=f"run {run.id} is damaged"):
        run.request
