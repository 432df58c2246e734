"""A model's tool call in, its result as text out: what the tools are, how their input is checked, how they fail."""

import os

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import ValidationError

from liger_dev.agents.prompts import fence
from liger_dev.errors import LigerDevError

# About 6000 tokens: the end of an error and the beginning of a file are what counts.
LONGEST_RESULT = 20_000
# What is shorter is no key that anybody has been given, and may be a word of the text.
SHORTEST_KEY = 8


class Arguments(BaseModel):
    """What a tool takes; its JSON schema is the tool's."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Nothing(Arguments):
    """For a tool without arguments."""


class Refused(Exception):
    """A tool's answer to a call that it does not carry out: it goes back to the model as an error."""


@dataclass(frozen=True)
class Tool:
    """`call` takes checked arguments and gives text. A final tool's gives JSON, which is what the agent hands in."""

    name: str
    description: str
    arguments: type[Arguments]
    call: Callable[[Any], Any]
    final: bool = False

    def definition(self) -> dict[str, Any]:
        """The tool as the Messages API takes it."""
        schema = self.arguments.model_json_schema()
        schema.pop("description", None)
        return {"name": self.name, "description": self.description, "input_schema": schema}


def run_tool(tools: Sequence[Tool], name: str, given: Any) -> tuple[str, bool, Any]:
    """Carries out a call: the text for the model, whether it is an error, and what a final tool was given (else None).

    Whatever goes wrong is an answer to the model, which can do something about it, and never the end of the talk.
    """
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        return f"there is no tool '{name}'; there are {', '.join(tool.name for tool in tools)}", True, None
    try:
        found = tool.call(tool.arguments.model_validate(given))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc'])) or name}: {fault['msg']}" for fault in error.errors()]
        return "the arguments do not fit: " + "; ".join(faults), True, None
    except Refused as refusal:
        return bounded(str(refusal)), True, None
    except LigerDevError as error:  # it may repeat what a child has said, and so what others wrote
        return fence(bounded(str(error)), name), True, None
    except Exception as failure:  # one of the tool's two: a tool's failure goes back to the model
        return fence(bounded(f"the tool failed: {type(failure).__name__}: {failure}"), name), True, None
    return ("accepted", False, found) if tool.final else (bounded(str(found)), False, None)


def bounded(text: str) -> str:
    """A text without the middle that a conversation has no room for, and without the key in any case."""
    key = os.environ.get("ANTHROPIC_API_KEY", "")
    if len(key) >= SHORTEST_KEY:
        text = text.replace(key, "[the key]")
    if len(text) <= LONGEST_RESULT:
        return text
    half = LONGEST_RESULT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out here …\n{text[-half:]}"
