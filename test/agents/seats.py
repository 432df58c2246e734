"""A seat in a run of a workspace, for agents under test."""

from liger_dev import runs
from liger_dev.agents.loop import Limits
from liger_dev.agents.seat import Seat
from liger_dev.agents.transcript import read_all


def seat_in(root, limits=Limits(), name="center"):
    run = runs.create_run(root, {"command": "new", "name": name})
    return Seat(root, run, "claude-opus-5-5", limits, lambda line: None)


def tool_results(seat):
    """What the tools of all talks have said, in order: text and whether it was an error."""
    events = [event for transcript in read_all(seat.run.folder) for event in transcript.of("results", "end")]
    return [(block["content"], block["is_error"]) for event in events for block in event["message"]["content"]]


def transcripts_text(seat):
    return "".join(transcript.path.read_text() for transcript in read_all(seat.run.folder))
