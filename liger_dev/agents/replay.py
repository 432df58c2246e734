"""A recorded talk and the agent that held it in, the same talk again out, without a network: tools run for real."""

from typing import Any

from liger_dev.agents.loop import Agent
from liger_dev.agents.loop import Limits
from liger_dev.agents.loop import run
from liger_dev.agents.transcript import Transcript
from liger_dev.errors import LigerDevError
from liger_dev.errors import ModelFailed


class Recorded:
    """A client that gives what another one has given, failures included."""

    def __init__(self, recorded: Transcript) -> None:
        self.model = str(recorded.of("start")[0]["model"])
        self._left = [e for e in recorded.of("answer", "stop") if e["kind"] == "answer" or e["by"] == "client"]

    def count(self, request: dict[str, Any]) -> int:
        return int(self._left[0].get("counted") or 0) if self._left else 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self._left:
            raise ModelFailed("the recording is at its end")
        event = self._left.pop(0)
        if event["kind"] == "stop":
            raise ModelFailed(event["what"])
        return dict(event["message"])


def replay(recorded: Transcript, agent: Agent, copy: Transcript, limits: Limits, already: float = 0.0) -> None:
    """Holds the talk again into `copy`; a stop is followed by another start, as with `liger-dev resume`.

    Each event must be the recorded one; tools that measure time or depend on the machine break that.
    """
    client = Recorded(recorded)
    while len(copy.events) < len(recorded.events):
        before = len(copy.events)
        try:
            run(agent, client, copy, limits, already=already)
        except LigerDevError:
            assert len(copy.events) > before, "a stop leaves an event"
        assert copy.events == recorded.events[: len(copy.events)], f"event {before} or one after it differs"
