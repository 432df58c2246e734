"""A run's folder and request in, a seat out where a stage's agent talks; every talk is a transcript in that folder."""

import contextlib
import os

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from typing import Any

from liger_dev.agents.loop import Agent
from liger_dev.agents.loop import Limits
from liger_dev.agents.loop import run
from liger_dev.agents.prices import price_of
from liger_dev.agents.transcript import FOLDER
from liger_dev.agents.transcript import Transcript
from liger_dev.agents.transcript import read_all
from liger_dev.agents.transcript import spent
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.errors import ModelFailed
from liger_dev.pipeline import Context
from liger_dev.records import digest
from liger_dev.runs import Run

DEFAULT_MODEL = "claude-opus-5-5"
KEY = "ANTHROPIC_API_KEY"


def has_key() -> bool:
    """Whether an agent can be asked at all."""
    return bool(os.environ.get(KEY))


@dataclass(frozen=True)
class Seat:
    """Where agents talk. `model` and `limits` are the run's, `root` is the workspace."""

    root: Path
    run: Run
    model: str
    limits: Limits
    say: Callable[[str], None]

    def talk(self, agent: Agent) -> Any:
        """What the agent hands in. The same talk is never paid twice: one that has ended is read from its transcript.

        Raises LimitReached and ModelFailed, with the command that goes on.
        """
        key = digest([self.model, agent.system, agent.task, [tool.definition() for tool in agent.tools], agent.basis])
        transcript = Transcript(self._place(f"{agent.name}-{key[:8]}.jsonl"))
        if transcript.last() == "end":
            return transcript.events[-1]["output"]
        check_budget(self.model, self.limits.dollars)
        from liger_dev.agents.claude import Claude

        others = [t for t in read_all(self.run.folder) if t.path != transcript.path]
        already = spent([event for other in others for event in other.events]).dollars or 0.0
        try:
            with contextlib.closing(Claude(self.model, self.say)) as client:
                return run(agent, client, transcript, self.limits, already=already, say=self.say)
        except LigerDevError as error:
            raise replace(error, todo=error.todo.replace(" RUN", f" {self.run.id}")) from None

    def _place(self, name: str) -> Path:
        """Where the talk is kept, numbered in the order in which the run's talks began."""
        folder = self.run.folder / FOLDER
        begun = sorted(folder.glob("*.jsonl"))
        found = next((path for path in begun if path.name.partition("-")[2] == name), None)
        return found or folder / f"{len(begun) + 1:03}-{name}"


def seat_of(context: Context) -> Seat:
    """The seat of a run's stage, as its request says: `model`, `max_cost`."""
    request = context.request
    limits = replace(Limits(), dollars=request.get("max_cost"))
    return Seat(context.root, Run(context.root, context.run_id), model_of(request), limits, context.say)


def model_of(request: Mapping[str, Any]) -> str:
    """The model that a request names, or the default one."""
    return str(request.get("model") or DEFAULT_MODEL)


def check_key(engine: str) -> None:
    """Raises ModelFailed where agents are asked for and there is no key."""
    if engine == "claude" and not has_key():
        raise ModelFailed("an agent needs a key for Anthropic's API", KEY, f"export {KEY}=…, or use --engine builtin")


def check_budget(model: str, dollars: float | None) -> None:
    """Raises BadInput for a budget that can't be kept."""
    if dollars is None:
        return
    if dollars <= 0:
        raise BadInput(f"a budget of {dollars:g} dollars allows no call", "--max-cost", "give more, or leave it out")
    if price_of(model) is None:
        raise BadInput(
            f"the price of {model} is not known here, so --max-cost could not be kept",
            "--max-cost",
            "leave --max-cost out, or choose a model of the price table in liger_dev/agents/prices.py",
        )
