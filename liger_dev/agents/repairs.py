"""A failed attempt of the gate in, a Repair out: an agent makes one small edit of the op file, and nothing else.

The gate keeps count: at most three attempts in all. After the third the agent writes what a person needs to know.
"""

from collections.abc import Set
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic import Field

from liger_dev.agents.generation import defined
from liger_dev.agents.generation import styled
from liger_dev.agents.loop import Agent
from liger_dev.agents.prompts import prompt
from liger_dev.agents.seat import Seat
from liger_dev.agents.staging import Staging
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.agents.trials import cases_text
from liger_dev.diagnosis import likely_cause
from liger_dev.errors import LigerDevError
from liger_dev.gate import ATTEMPTS
from liger_dev.gate import Attempt
from liger_dev.gate import Gate
from liger_dev.grader_report import held_out
from liger_dev.repair import GRADER
from liger_dev.repair import Repair
from liger_dev.repair import unified_diff


class SubmitRepair(Arguments):
    reason: str = Field(description="what was wrong and what the edit does, in a sentence")


class SubmitAccount(Arguments):
    cause: str = Field(description="the likely cause and what speaks for it")
    asked: str = Field(description="what the person should look at or decide")


@dataclass
class Mender:
    """Makes the gate's repairs for the kernel `name` of the workspace `root`; it remembers those it has made."""

    name: str
    root: Path
    seat: Seat
    made: list[Repair] = field(default_factory=list)

    def __call__(self, text: str, attempt: Attempt, tried: Set[str]) -> Repair | None:
        """The next repair of the op file's `text`. Raises LimitReached and ModelFailed."""
        number = len(self.made) + 1
        if number >= ATTEMPTS:
            return None
        op = f"kernels/ops/{self.name}.py"
        staging = Staging(self.root, self.name, frozenset({op}), base={op: text})
        values = {
            **self._failure(attempt, text),
            "cause": likely_cause(attempt.kind, attempt.failures),
            "number": number,
            "most": ATTEMPTS - 1,
            "tried": [f"{repair.reason}\n{repair.diff}" for repair in self.made],
        }

        def submit(given: SubmitRepair) -> dict[str, Any]:
            mended = styled(staging, [op], defined(text, op))[op]
            if mended == text:
                raise Refused("nothing was edited; edit the file first")
            return {"op": mended, "reason": given.reason}

        tools = (
            *staging.reading(),
            *staging.writing(),
            Tool("submit_repair", "Hands in the op file as it is staged.", SubmitRepair, submit, final=True),
        )
        system = prompt("system", {"role": "validator", "final": "submit_repair"})
        handed = self.seat.talk(Agent("validator", system, prompt("repair", values), tools, staging.files))
        reason = handed["reason"].strip().rstrip(".")
        self.made.append(
            Repair(f"repair {number} by {self.seat.model}", reason, handed["op"], unified_diff(text, handed["op"], op))
        )
        return self.made[-1]

    def account(self, gate: Gate, text: str) -> str:
        """What the agent says to the person after the last attempt; if it can't, why not."""
        values = {
            **self._failure(gate.judged, text),
            "attempts": len(gate.attempts),
            "repairs": [f"{repair.reason}\n{repair.diff}" for repair in self.made],
        }

        def submit(given: SubmitAccount) -> dict[str, Any]:
            return {"text": f"{given.cause.strip()}\n\nAsked of you: {given.asked.strip()}"}

        tools = (
            *Staging(self.root, self.name, frozenset()).reading(),
            Tool("submit_account", "Hands in the account for the person.", SubmitAccount, submit, final=True),
        )
        system = prompt("system", {"role": "validator", "final": "submit_account"})
        try:
            return str(self.seat.talk(Agent("validator", system, prompt("diagnose", values), tools))["text"])
        except LigerDevError as error:
            return f"The agent gave no account: {error.what}."

    def _failure(self, attempt: Attempt, text: str) -> dict[str, Any]:
        op = f"kernels/ops/{self.name}.py"
        verdict = attempt.verdict if attempt.kind == GRADER else None
        return {
            "name": self.name,
            "op": op,
            "kind": attempt.kind,
            "failures": held_out(verdict) if verdict else cases_text(attempt.cases),
            "origin": "grader" if verdict else "tests",
            "text": text,
        }
