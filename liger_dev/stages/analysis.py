"""The analyzer as a stage: a source in the request, its analysis as reviewed, edited or made otherwise."""

from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from liger_dev import workspace
from liger_dev.pipeline import Context
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.records import Source
from liger_dev.requests import profile_path
from liger_dev.requests import reference_path

if TYPE_CHECKING:
    from liger_dev.analyzer import Analysis


def _analyze_inputs(context: Context) -> Any:
    return [*(context.request.get(key, "") for key in ("name", "source", "profile", "keep")), seat_inputs(context)]


def seat_inputs(context: Context) -> list[str]:
    """Who works on a stage, as far as the stage's output follows from it."""
    return [context.request.get(key) or "" for key in ("engine", "model")]


def _analyze(context: Context) -> Any:
    from liger_dev.agents.engine import analyze

    return analyze(context, _source(context.request["source"])).to_json()


def _retry_analysis(context: Context, output: Any, remark: str) -> Any:
    from liger_dev.agents import engine

    if not engine.asks(context.request):
        return None
    source = _source(context.request["source"])
    return engine.remark_on_analysis(context, source, analysis_of(output), remark).to_json()


def _source(data: dict[str, Any]) -> Source:
    return Source(**{**data, "shapes": {name: tuple(shape) for name, shape in data["shapes"].items()}})


def analysis_of(output: Any) -> "Analysis":
    from liger_dev.analyzer import Analysis

    return Analysis.from_json(output)


def _analysis_views(context: Context, output: Any, brief: bool) -> list[View]:
    from liger_dev.profile import print_profile

    analysis = analysis_of(output)
    name, profile = analysis.reference.name, analysis.profile
    assumptions = dict.fromkeys((*analysis.reference.assumptions, *profile.assumptions, *analysis.notes))
    about = [
        f"closest existing kernel: {profile.closest_existing_kernel}",
        f"tier: {profile.tier} ({profile.tier_description})",
        "assumptions and doubts:" if assumptions else "assumptions and doubts: none",
        *(f"  - {assumption}" for assumption in assumptions),
    ]
    return [
        View(reference_path(name), analysis.reference.text, "python"),
        View(profile_path(name), print_profile(profile), "yaml"),
        View("What the analyzer found", "\n".join(about), "text"),
    ]


def _analysis_texts(context: Context, output: Any) -> dict[str, str]:
    from liger_dev.profile import print_profile

    analysis = analysis_of(output)
    name = analysis.reference.name
    return {reference_path(name): analysis.reference.text, profile_path(name): print_profile(analysis.profile)}


def _revise_analysis(context: Context, output: Any, path: str, text: str) -> Any:
    """An edited profile takes the old one's place; an edited reference is analyzed, which derives the profile again.

    What the generator will not honour is refused here, where it can be edited again, and not at the next stage.
    """
    from liger_dev.agents.draft import is_by_agent
    from liger_dev.agents.engine import reanalyze
    from liger_dev.generator import generate
    from liger_dev.profile import parse_profile

    analysis = analysis_of(output)
    name = analysis.reference.name
    if path == profile_path(name):
        profile = parse_profile(text, path)
        if is_by_agent(analysis.profile):
            context.say("the edited profile goes to the agent that writes the kernel")
            return replace(analysis, profile=profile).to_json()
        context.say("checking that the generator honours the edited profile")
        generate(analysis.reference, profile, context.root, overwrite=True)
        return replace(analysis, profile=profile).to_json()
    context.say("analyzing the edited reference; the profile is derived from it again")
    given = _source(context.request["source"])
    origin = f"{analysis.reference.origin}, edited at the review"
    edited = Source("function", text, name, origin, given.shapes, sha256=given.sha256)
    return reanalyze(context, analysis, edited).to_json()


def analysis_changes(context: Context, output: Any) -> ChangeSet:
    """The two files that `analyze` on its own leaves for `generate`. Their bases are what is there now."""
    texts = _analysis_texts(context, output)
    return ChangeSet(tuple(Change(path, text, workspace.base_of(context.root, path)) for path, text in texts.items()))


ANALYZE = Stage(
    "analyze",
    "analyzing the source",
    _analyze_inputs,
    _analyze,
    _analysis_views,
    texts=_analysis_texts,
    revise=_revise_analysis,
    retry=_retry_analysis,
)
