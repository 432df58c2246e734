"""A source that code alone can't read in, its Analysis out: an agent writes the reference, the builtin analyzer checks it.

What the profile says comes from the trace, or from runs compared with autograd, never from the model's word alone.
"""

import sys
import tempfile

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from liger_dev import sources
from liger_dev.agents.draft import BY_AGENT
from liger_dev.agents.draft import KernelFacts
from liger_dev.agents.draft import draft_profile
from liger_dev.agents.loop import Agent
from liger_dev.agents.prompts import prompt
from liger_dev.agents.seat import Seat
from liger_dev.agents.staging import Staging
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.analyzer import Analysis
from liger_dev.analyzer import analyze
from liger_dev.analyzer import compare_in_child
from liger_dev.analyzer import facts_in_child
from liger_dev.analyzer import load_in_child
from liger_dev.errors import BadInput
from liger_dev.errors import Unsupported
from liger_dev.profile import print_profile
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.records import digest
from liger_dev.render import format_python
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child

_EXAMPLE = "rms_norm"
_SHOW_SOURCE = """
import importlib, inspect, sys
module, _, name = sys.argv[1].partition(":")
found = importlib.import_module(module)
for part in name.split("."):
    found = getattr(found, part)
print(inspect.getsource(found))
"""


class CheckReference(Arguments):
    text: str = Field(description="the whole file")


class SubmitReference(CheckReference):
    assumptions: list[str] = Field(description="what the source left open and you decided; one sentence each")
    facts: KernelFacts | None = Field(default=None, description="only where the compiler can't express the reference")


@dataclass(frozen=True)
class Wish:
    """A reviewer's remark on the last result."""

    remark: str
    previous: str


def analyze_by_agent(name: str, source: Source, seat: Seat, refusal: str = "", wish: Wish | None = None) -> Analysis:
    """The analysis of a source of any kind, prose included.

    Args:
        refusal: what the compiler has said of the source.
        wish: what a reviewer wants otherwise.

    Raises:
        LimitReached, ModelFailed: the agent did not come to an end.
        BadInput: the source's text can't be had.
    """
    text = _text_of(source)
    staging = Staging(seat.root, name, frozenset())
    values = {
        "name": name,
        "source": text,
        "origin": source.origin,
        "refusal": refusal,
        "example": (sources.CATALOG / f"{_EXAMPLE}.py").read_text(encoding="utf-8"),
        "previous": wish.previous if wish else "",
        "remark": wish.remark if wish else "",
    }

    original = lru_cache(maxsize=1)(lambda: _original(name, source))

    def check(given: CheckReference) -> str:
        return print_profile(_examined(name, given.text, None, source, original, seat).profile)

    def submit(given: SubmitReference) -> dict[str, Any]:
        analysis = _examined(name, given.text, given.facts, source, original, seat)
        said = tuple(dict.fromkeys((*analysis.reference.assumptions, *given.assumptions)))
        profile = analysis.profile.model_copy(update={"assumptions": list(said)})
        return replace(analysis, reference=replace(analysis.reference, assumptions=said), profile=profile).to_json()

    tools = (
        *staging.reading(),
        Tool("check_reference", "Runs the builtin analyzer on a draft and shows the profile.", CheckReference, check),
        Tool("submit_reference", "Checks the reference and hands it in.", SubmitReference, submit, final=True),
    )
    system = prompt("system", {"role": "analyzer", "final": "submit_reference"})
    return Analysis.from_json(seat.talk(Agent("analyzer", system, prompt("analyze", values), tools)))


def _examined(
    name: str,
    text: str,
    facts: KernelFacts | None,
    source: Source,
    original: Callable[[], Reference | None],
    seat: Seat,
) -> Analysis:
    """The builtin analysis of a draft. Raises Refused or LigerDevError, which both go back to the model."""
    path = f"{name}.py"
    text = format_python({path: text})[path]
    origin = f"{source.origin}, written by {seat.model}"
    draft = Source("function", text, name, origin, source.shapes)
    try:
        analysis = analyze(name, draft, root=seat.root)
    except Unsupported as refusal:
        if facts is None:
            raise Refused(
                f"{refusal}\nThe reference is a differentiable function, but the compiler can't express it. Write it "
                "with other operations, or hand it in with `facts`, and a kernel is then written by an agent."
            ) from None
        analysis = _drafted(name, draft, facts, refusal)
    note = _compared(analysis.reference, original())
    provenance = {**analysis.profile.provenance, "engine": "claude", "model": seat.model}
    profile = analysis.profile.model_copy(update={"provenance": provenance})
    return replace(analysis, profile=profile, notes=(*analysis.notes, *note))


def _drafted(name: str, draft: Source, facts: KernelFacts, refusal: Unsupported) -> Analysis:
    reference = load_in_child(name, draft)
    outputs = facts_in_child(reference, facts.formulas())
    reason = f"{refusal.what} ({refusal.where})" if refusal.where else refusal.what
    provenance = {"source": draft.origin, "reference_sha256": digest(reference.text), BY_AGENT: f"refused: {reason}"}
    notes = ("the gradient formulas are an agent's, and agree with autograd in float64",)
    return Analysis(reference, draft_profile(reference, facts, outputs, provenance), notes)


def _compared(reference: Reference, original: Reference | None) -> tuple[str, ...]:
    """Compares a draft with a source that can be called itself. Raises BadInput where they differ."""
    if original is None:
        return (f"the reference comes from {reference.origin}: there was no code to compare it with",)
    compare_in_child(reference, original)
    return ("the reference agrees with its source in float64 on random inputs",)


def _original(name: str, source: Source) -> Reference | None:
    """The source as a reference, if it is a function or an expression that loads; a module has more in it than the op."""
    if source.kind not in ("function", "expression") or f"class {source.entry}" in source.text:
        return None
    try:
        return load_in_child(name, source)
    except BadInput:
        return None


def _text_of(source: Source) -> str:
    """What the agent reads; of an importable name the source that Python finds, printed by a child."""
    if source.kind != "import":
        return source.text
    with tempfile.TemporaryDirectory(prefix="liger-dev-") as folder:
        argv = [sys.executable, "-c", _SHOW_SOURCE, source.entry]
        done = run_child(argv, scratch=Path(folder), limits=Limits(), env={"PYTHONPATH": str(Path.cwd())})
    if done.returncode or not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it has no Python source"])[-1]
        raise BadInput(f"the source of '{source.origin}' can't be shown: {last}", source.origin, "give it as a file")
    return done.stdout
