"""A small agent that adds numbers, and the real loop and client around it."""

import contextlib
import json

from pydantic import Field

from liger_dev.agents.claude import Claude
from liger_dev.agents.loop import Agent
from liger_dev.agents.loop import Limits
from liger_dev.agents.loop import run
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.agents.transcript import Transcript


class Add(Arguments):
    name: str
    number: int = Field(ge=0)


class Submit(Arguments):
    total: int


def adder():
    """Notes numbers as files; `submit` takes their sum and nothing else."""
    agent = Agent("adder", "You add.", "Add 2 and 3.", tools := [])

    def add(given):
        agent.files[given.name] = str(given.number)
        return f"{len(agent.files)} numbers"

    def submit(given):
        if given.total != sum(int(text) for text in agent.files.values()):
            raise Refused("that is not the sum")
        return {"total": given.total}

    def crash(given):
        raise ZeroDivisionError("by design")

    tools += [
        Tool("add", "Notes a number.", Add, add),
        Tool("crash", "Fails.", Add, crash),
        Tool("submit", "Hands in the sum.", Submit, submit, final=True),
    ]
    return agent


def talk(path, model="claude-opus-5-5", limits=Limits(), **options):
    """The adder's talk with the served model, into or out of the transcript at `path`."""
    with contextlib.closing(Claude(model)) as client:
        return run(adder(), client, Transcript(path), limits, **options)


def kinds(path):
    return [event["kind"] for event in Transcript(path).events]


def assert_appended_only(script):
    """Each request of a talk repeats the one before it word for word, and adds to its end."""
    texts = [json.dumps(request["messages"]).removesuffix("]") for request in script.requests]
    for shorter, longer in zip(texts, texts[1:]):
        assert longer.startswith(shorter)
