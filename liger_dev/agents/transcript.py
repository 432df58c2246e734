"""A talk with a model as a file of events: appended to at every step, read again to resume, to replay and to show."""

import json

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liger_dev.agents.prices import tokens_of
from liger_dev.disk import append_line
from liger_dev.disk import disk_errors
from liger_dev.disk import make_folder

FOLDER = "transcripts"
_SHOWN = 4000

Event = dict[str, Any]


class Transcript:
    """The events of one talk. An event is in the file before anything follows from it.

    `start` says who talks to which model; `task`, `answer`, `results` and `nudge` carry a message; `results` also the
    files that the tools have changed; `pause` stands where an answer needs no reply; `stop` is a failure, after which
    the talk may go on; `end` is the results with which it ends, with what was handed in. No event carries a time, so that a replay gives the same bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        if path.exists():
            self.events = [event for line in path.read_bytes().splitlines() if (event := _parsed(line)) is not None]

    def append(self, event: Event) -> None:
        line = json.dumps(event, ensure_ascii=False, sort_keys=True)
        with disk_errors("mend this (permission, space) and `liger-dev resume` the run"):
            make_folder(self.path.parent)
            append_line(self.path, line.encode())
        self.events.append(json.loads(line))

    def last(self) -> str:
        """The kind of the last event, "" before the first."""
        return str(self.events[-1]["kind"]) if self.events else ""

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event["kind"] in kinds]

    def messages(self) -> list[dict[str, Any]]:
        """The conversation as the model sees it. An answer that was refused or empty is not sent back."""
        found = self.of("task", "answer", "results", "nudge", "end")
        kept = [e for e in found if e["message"]["content"] and e["message"].get("stop_reason") != "refusal"]
        return [{"role": e["message"]["role"], "content": e["message"]["content"]} for e in kept]

    def files(self) -> dict[str, str]:
        """The staged files after the last tool results."""
        return {path: text for event in self.of("results", "end") for path, text in event["files"].items()}


@dataclass(frozen=True)
class Spent:
    """What talks took: answers, tokens in and out, dollars (None if a price is not known)."""

    answers: int
    input: int
    output: int
    dollars: float | None


def spent(events: list[Event]) -> Spent:
    """The sum over all answers, those that were refused or cut off included."""
    answers = [event for event in events if event["kind"] == "answer"]
    tokens = [tokens_of(event["message"].get("usage", {})) for event in answers]
    prices = [event["dollars"] for event in answers]
    dollars = None if None in prices else float(sum(prices))
    return Spent(len(answers), sum(i for i, _ in tokens), sum(o for _, o in tokens), dollars)


def read_all(run_folder: Path) -> list[Transcript]:
    """The transcripts of a run, in the order in which they began."""
    return [Transcript(path) for path in sorted((run_folder / FOLDER).glob("*.jsonl"))]


def cost_table(transcripts: list[Transcript]) -> list[str]:
    """A Markdown table: what each agent's talks took, and their sum."""
    lines = ["| Agent | Model | Answers | Tokens in | Tokens out | Dollars |", "|---|---|---:|---:|---:|---:|"]
    for transcript in transcripts:
        start = (transcript.of("start") or [{"agent": transcript.path.stem, "model": "?"}])[0]
        lines.append(_cost_row(start["agent"], start["model"], spent(transcript.events)))
    events = [event for transcript in transcripts for event in transcript.events]
    return [*lines, _cost_row("all", "", spent(events))]


def _cost_row(agent: str, model: str, sums: Spent) -> str:
    dollars = "unknown" if sums.dollars is None else f"{sums.dollars:.4f}"
    return f"| {agent} | {model} | {sums.answers} | {sums.input} | {sums.output} | {dollars} |"


def lines_of(transcript: Transcript) -> Iterator[str]:
    """A talk as text for a person; long texts are cut, the file has them whole."""
    for event in transcript.events:
        match event["kind"]:
            case "start":
                yield f"--- {event['agent']}, model {event['model']}"
            case "task" | "answer" | "results" | "nudge":
                yield from _message_lines(event)
            case "stop":
                yield f"[stopped] {event['what']}"
            case "end":
                yield from _message_lines(event)
                yield "[handed in]"


def _message_lines(event: Event) -> Iterator[str]:
    message = event["message"]
    if event["kind"] == "answer":
        taken, given = tokens_of(message.get("usage", {}))
        cost = "" if event["dollars"] is None else f", ${event['dollars']:.4f}"
        yield f"[{event['kind']}: {message.get('stop_reason')}, {taken} tokens in, {given} out{cost}]"
    else:
        yield f"[{event['kind']}]"
    content = message["content"]
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        yield from _block_lines(block)


def _block_lines(block: dict[str, Any]) -> Iterator[str]:
    match block["type"]:
        case "text":
            yield _cut(block["text"])
        case "thinking":
            if block["thinking"]:
                yield f"(thinking) {_cut(block['thinking'])}"
        case "tool_use":
            yield f"-> {block['name']}"
            yield from (f"   {name}: {_cut(str(value))}" for name, value in block["input"].items())
        case "tool_result":
            yield f"<- {'error: ' if block.get('is_error') else ''}{_cut(block['content'])}"
        case kind:
            yield f"({kind})"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}\n… {len(text) - _SHOWN} more characters"


def _parsed(line: bytes) -> Event | None:
    """The event in a line; None for a line that a kill has torn."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "kind" in event else None
