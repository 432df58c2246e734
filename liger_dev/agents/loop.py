"""An agent, a model's client and a transcript in, what the agent hands in out: the one loop that all agents run.

The transcript is the only state: where a talk stands follows from its last event, so that resuming is running again.
"""

import time

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Protocol

from liger_dev.agents.prices import dollars_of
from liger_dev.agents.prices import price_of
from liger_dev.agents.prices import tokens_of
from liger_dev.agents.tools import Tool
from liger_dev.agents.tools import run_tool
from liger_dev.agents.transcript import Event
from liger_dev.agents.transcript import Transcript
from liger_dev.agents.transcript import spent
from liger_dev.errors import LigerDevError
from liger_dev.errors import LimitReached
from liger_dev.errors import ModelFailed

# An answer with less room than this is cut off in the middle of a kernel: not worth its price.
LEAST_ANSWER = 1024
NUDGES = 3
_GO_ON = "look at it: liger-dev show RUN --transcript; or give it as much again: liger-dev resume RUN"


@dataclass(frozen=True)
class Limits:
    """What a talk may take; checked before each call.

    `dollars` is for the whole run. `steps` (answers), `tokens` and `seconds` are for a talk, and begin anew when it is
    resumed. `context` bounds the tokens of the whole conversation, `answer` those of one answer.
    """

    steps: int = 40
    tokens: int = 4_000_000
    dollars: float | None = None
    seconds: float = 3600.0
    context: int = 180_000
    answer: int = 32_000


@dataclass(frozen=True)
class Agent:
    """Who talks: prompts and tools, one of which is final. `files` is what the tools have staged so far, by path.

    `basis` tells apart talks that begin with the same words about other files.
    """

    name: str
    system: str
    task: str
    tools: tuple[Tool, ...]
    files: dict[str, str] = field(default_factory=dict)
    basis: str = ""


class Client(Protocol):
    """The way to a model. Both calls raise ModelFailed."""

    model: str

    def count(self, request: dict[str, Any]) -> int:
        """The input tokens of a request."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The model's message: role, content, stop_reason, usage."""


def run(
    agent: Agent,
    client: Client,
    transcript: Transcript,
    limits: Limits,
    *,
    already: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda line: None,
) -> Any:
    """Talks until the final tool accepts, and returns what it was given; goes on where the transcript ends.

    Args:
        already: dollars that the run's other talks have cost.

    Raises:
        LimitReached: before a call that would exceed a limit.
        ModelFailed: the model refused, fell silent, or could not be reached.
    """
    deadline = clock() + limits.seconds
    if not transcript.events:
        transcript.append({"kind": "start", "agent": agent.name, "model": client.model})
        transcript.append({"kind": "task", "message": {"role": "user", "content": agent.task}})
    agent.files.update(transcript.files())
    while transcript.last() != "end":
        if transcript.last() != "answer":
            _ask(agent, client, transcript, limits, already, deadline - clock())
        _react(agent, transcript, say)
    return transcript.events[-1]["output"]


def _ask(
    agent: Agent, client: Client, transcript: Transcript, limits: Limits, already: float, seconds_left: float
) -> None:
    request = {
        "system": agent.system,
        "tools": [tool.definition() for tool in agent.tools],
        "messages": transcript.messages(),
        "max_tokens": limits.answer,
    }
    by, counted = "loop", None
    try:
        _check(transcript, limits, seconds_left)
        if limits.dollars is not None:
            by = "client"
            counted = client.count(request)
            by = "loop"
            request["max_tokens"] = _affordable(client.model, counted, transcript, limits, already)
        by = "client"
        message = client.answer(request)
    except LigerDevError as error:
        transcript.append({"kind": "stop", "by": by, "what": error.what})
        raise
    dollars = dollars_of(client.model, message.get("usage", {}))
    transcript.append({"kind": "answer", "message": message, "dollars": dollars, "counted": counted})


def _check(transcript: Transcript, limits: Limits, seconds_left: float) -> None:
    stops = [number for number, event in enumerate(transcript.events) if event["kind"] == "stop"]
    sums, answers = spent(transcript.events[stops[-1] if stops else 0 :]), transcript.of("answer")
    size = sum(tokens_of(answers[-1]["message"].get("usage", {}))) if answers else 0
    for reached, what, todo in (
        (sums.answers >= limits.steps, f"{limits.steps} answers", _GO_ON),
        (sums.input + sums.output >= limits.tokens, f"{limits.tokens} tokens", _GO_ON),
        (seconds_left <= 0, f"{limits.seconds:g} seconds", _GO_ON),
        (_nudges(transcript) > NUDGES, f"{NUDGES + 1} answers in a row that hand nothing in", _GO_ON),
        (size >= limits.context, f"a conversation of {limits.context} tokens", "start a new run"),
    ):
        if reached:
            raise LimitReached(f"the agent has reached its limit of {what}", transcript.path.name, todo)


def _affordable(model: str, counted: int, transcript: Transcript, limits: Limits, already: float) -> int:
    """How long the next answer may be, so that even the dearest one stays within the dollars."""
    assert limits.dollars is not None, "asked for only with a limit"
    price, so_far = price_of(model), spent(transcript.events).dollars
    if price is None or so_far is None:
        raise LimitReached(
            f"the price of {model} is not known, so --max-cost can't be kept", "--max-cost", "leave --max-cost out"
        )
    left = limits.dollars - already - so_far - counted * max(price.input, price.write) / 1e6
    answer = min(limits.answer, int(left * 1e6 / price.output))
    if answer < LEAST_ANSWER:
        taken = f"${already + so_far:.4f} of ${limits.dollars:.4f} are spent, and the next answer may cost more"
        raise LimitReached(
            f"the budget is reached: {taken}",
            "--max-cost",
            "liger-dev resume RUN --max-cost DOLLARS, with more of them",
        )
    return answer


def _nudges(transcript: Transcript) -> int:
    """Nudges in a row, up to the last event; a stop begins a new row."""
    kinds = [event["kind"] for event in transcript.events if event["kind"] not in ("answer", "pause")]
    return next((n for n, kind in enumerate(reversed(kinds)) if kind != "nudge"), len(kinds))


def _react(agent: Agent, transcript: Transcript, say: Callable[[str], None]) -> None:
    """One event in reply to the last answer, or two where the final tool has accepted."""
    message = transcript.events[-1]["message"]
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    final = next(tool.name for tool in agent.tools if tool.final)
    match message["stop_reason"]:
        case "refusal":
            explanation = (message.get("stop_details") or {}).get("explanation") or "no reason was given"
            todo = "word the source or the remark differently; or ask again: liger-dev resume RUN"
            error = ModelFailed(f"the model refused: {explanation}", transcript.path.name, todo)
            transcript.append({"kind": "stop", "by": "loop", "what": error.what})
            raise error
        case "max_tokens" | "model_context_window_exceeded" if calls:
            reason = "your answer was cut off at its limit of length, so none of its calls was run; do it in parts"
            transcript.append(_results([_result(call, reason, True) for call in calls], {}))
        case "max_tokens" | "model_context_window_exceeded":
            transcript.append(_nudge(f"Your answer was cut off at its limit of length. Be brief, and call {final}."))
        case "pause_turn":
            transcript.append({"kind": "pause"})
        case _ if calls:
            _run_calls(agent, transcript, calls, say)
        case _:
            transcript.append(_nudge(f"Nothing was handed in. Go on with the tools, and end by calling {final}."))


def _run_calls(agent: Agent, transcript: Transcript, calls: list[Event], say: Callable[[str], None]) -> None:
    """All calls of an answer, one after the other: a test that follows a write in the same answer must see it."""
    before = transcript.files()
    results = []
    accepted: Event | None = None
    for call in calls:
        say(f"{agent.name}: {call['name']}")
        text, is_error, output = run_tool(agent.tools, call["name"], call["input"])
        results.append(_result(call, text, is_error))
        if output is not None and not is_error:
            accepted = {"kind": "end", "output": output}
    staged = {path: text for path, text in agent.files.items() if before.get(path) != text}
    # One event, so that a kill can't leave a call that was accepted in a talk that goes on.
    transcript.append({**_results(results, staged), **(accepted or {})})


def _result(call: Event, text: str, is_error: bool) -> Event:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": is_error}


def _results(results: list[Event], files: dict[str, str]) -> Event:
    return {"kind": "results", "message": {"role": "user", "content": results}, "files": files}


def _nudge(text: str) -> Event:
    return {"kind": "nudge", "message": {"role": "user", "content": text}}
