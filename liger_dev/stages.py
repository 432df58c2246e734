"""A request in, its stages out: analyzer, generator and validator as the pipeline runs and shows them."""

import difflib
import unicodedata

from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.pipeline import Context
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.records import Source
from liger_dev.records import digest
from liger_dev.requests import Request
from liger_dev.requests import profile_path
from liger_dev.requests import reference_path

if TYPE_CHECKING:
    from liger_dev.analyzer import Analysis
    from liger_dev.validator import Report


def stages_of(request: Request) -> tuple[Stage, ...]:
    """The stages that a request goes through, in order."""
    match request["command"]:
        case "new":
            return (*_looks(request), ANALYZE, GENERATE, VALIDATE)
        case "analyze":
            return (*_looks(request), replace(ANALYZE, changes=_analysis_changes))
        case "retrace":
            again = replace(ANALYZE, title="tracing the source again", reviewed=False)
            return (*_looks(request), again, GENERATE, VALIDATE)
        case "modify":
            return (MODIFY, VALIDATE)
        case "generate":
            return (replace(ANALYZE, title="reading the profile and the reference", reviewed=False), GENERATE)
        case "init":
            return (INIT,)
        case "bench":
            return (BENCH,)
        case "report":
            return (PAGE,)
        case "roofline":
            return (replace(PLOT, make=_roofline),)
        case "plot":
            return (PLOT,)
        case "validate":
            return (replace(VALIDATE, reviewed=False),)
        case command:
            raise BadInput(
                f"the run asks for '{command}', which this version does not know", todo="use a newer version"
            )


def _looks(request: Request) -> tuple[Stage, ...]:
    """A fetched text is looked at before anything of it runs."""
    return (FETCHED,) if request.get("source", {}).get("sha256") else ()


def _fetched_inputs(context: Context) -> Any:
    return context.request["source"]


def _fetched(context: Context) -> Any:
    return {key: context.request["source"][key] for key in ("origin", "sha256", "text", "entry")}


def _fetched_views(context: Context, output: Any, brief: bool) -> list[View]:
    about = [
        f"fetched from {output['origin']}",
        f"sha256 {output['sha256']}, {len(output['text'].splitlines())} lines; '{output['entry']}' is taken from it",
        "nothing of it has run yet; the analyzer imports it in a child process: look for what has no business there",
        "its licence is its author's: see whether it may be used here",
    ]
    return [
        View(output["origin"], visible(output["text"]), "python"),
        View("What was fetched", "\n".join(about), "text"),
    ]


def visible(text: str) -> str:
    """A text with its control and formatting characters spelled out: they could hide a part of it on a terminal."""
    shown = (
        c
        if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp")
        else c.encode("unicode_escape").decode()
        for c in text.replace("\r\n", "\n")
    )
    return "".join(shown)


def _analyze_inputs(context: Context) -> Any:
    return [*(context.request.get(key, "") for key in ("name", "source", "profile", "keep")), _seat(context)]


def _seat(context: Context) -> list[str]:
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
    return engine.remark_on_analysis(context, source, _analysis(output), remark).to_json()


def _source(data: dict[str, Any]) -> Source:
    return Source(**{**data, "shapes": {name: tuple(shape) for name, shape in data["shapes"].items()}})


def _analysis(output: Any) -> "Analysis":
    from liger_dev.analyzer import Analysis

    return Analysis.from_json(output)


def _analysis_views(context: Context, output: Any, brief: bool) -> list[View]:
    from liger_dev.profile import print_profile

    analysis = _analysis(output)
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

    analysis = _analysis(output)
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

    analysis = _analysis(output)
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


def _analysis_changes(context: Context, output: Any) -> ChangeSet:
    """The two files that `analyze` on its own leaves for `generate`. Their bases are what is there now."""
    texts = _analysis_texts(context, output)
    return ChangeSet(tuple(Change(path, text, workspace.base_of(context.root, path)) for path, text in texts.items()))


def _generate_inputs(context: Context) -> Any:
    return [digest(context.outputs["analyze"]), context.request["overwrite"], _seat(context)]


def _generate(context: Context) -> Any:
    from liger_dev.agents.engine import generate

    return generate(context, _analysis(context.outputs["analyze"])).to_json()


def _retry_generation(context: Context, output: Any, remark: str) -> Any:
    from liger_dev.agents import engine

    if not engine.asks(context.request):
        return None
    analysis = _analysis(context.outputs["analyze"])
    return engine.remark_on_kernel(context, analysis, ChangeSet.from_json(output), remark).to_json()


def _modify_inputs(context: Context) -> Any:
    return [context.request["name"], context.request["wish"], _seat(context)]


def _modify(context: Context) -> Any:
    from liger_dev.agents.engine import modify

    return modify(context).to_json()


def _retry_modification(context: Context, output: Any, remark: str) -> Any:
    from liger_dev.agents import engine

    return engine.modify(context, remark, ChangeSet.from_json(output)).to_json()


def _changes(context: Context, output: Any) -> ChangeSet:
    return ChangeSet.from_json(output)


def _generate_views(context: Context, output: Any, brief: bool) -> list[View]:
    made = ChangeSet.from_json(output)
    pairs = [(workspace.read(context.root, change.path), change) for change in made.changes]
    diffs = {change.path: _diff(old, change) for old, change in pairs}
    lines = [f"{_fate(old, change, diffs[change.path]):20}{change.path}" for old, change in pairs]
    files = View("Files", "\n".join(lines) or "nothing to change: all files are in place", "text")
    said = [View("About the kernel", made.said, "text")] if made.said else []
    text = "".join(diffs.values())
    return [*said, files] if brief or not text else [*said, files, View("Diff", text, "diff")]


def _fate(old: str | None, change: Change, diff: str) -> str:
    """What becomes of a file: `new`, `changed` with the numbers of lines, or `in place`."""
    if old == change.content:
        return "in place"
    lines = diff.splitlines()[2:]
    counts = f"+{sum(line[:1] == '+' for line in lines)} -{sum(line[:1] == '-' for line in lines)}"
    return f"{'new' if old is None else 'changed'} {counts}"


def _diff(old: str | None, change: Change) -> str:
    before = (old or "").splitlines(keepends=True)
    after = change.content.splitlines(keepends=True)
    origin = "/dev/null" if old is None else f"a/{change.path}"
    lines = difflib.unified_diff(before, after, origin, f"b/{change.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _generate_texts(context: Context, output: Any) -> dict[str, str]:
    """All files but those that the analyzer's review is about: editing them here would part them from the kernel."""
    name = context.request["name"]
    settled = (profile_path(name), reference_path(name))
    changes = ChangeSet.from_json(output).changes
    return {change.path: change.content for change in changes if change.path not in settled}


def _revise_file(context: Context, output: Any, path: str, text: str) -> Any:
    """A reviewer's edit of a generated file; it keeps its stamp, and so counts as edited by hand from then on."""
    from liger_dev.render import parse

    if path.endswith(".py"):
        parse(text, path)
    made = ChangeSet.from_json(output)
    return replace(
        made, changes=tuple(replace(c, content=text) if c.path == path else c for c in made.changes)
    ).to_json()


def _skeleton(context: Context) -> Any:
    from liger_dev.skeleton import skeleton

    return skeleton(context.root).to_json()


def _no_inputs(context: Context) -> Any:
    return []


def _validate_inputs(context: Context) -> Any:
    options = [*(context.request[key] for key in ("name", "benchmark", "ncu")), _accepted(context)]
    written = context.outputs.get("modify") or context.outputs.get("generate", "")
    return [options, digest(written), list(context.reviews), _seat(context)]


def _validate(context: Context) -> Any:
    from liger_dev.agents import engine
    from liger_dev.validator import validate

    options = {**{key: context.request[key] for key in ("benchmark", "ncu")}, "accept": _accepted(context)}
    mend, account = engine.mend_of(context)
    report = validate(
        context.request["name"],
        context.root,
        say=context.say,
        mend=mend,
        account=account,
        talks=engine.talks(context),
        **options,
    )
    report = _with_section(report, "Agents", engine.costs(context))
    return _with_page(_with_reviews(report, context.reviews), context).to_json()


def _with_page(report: "Report", context: Context) -> "Report":
    """The report with its page in HTML among the files, which shows the Markdown as it is at last."""
    from liger_dev import results

    name, changes = context.request["name"], report.changes.changes
    html = results.page(name, report.markdown, context.root, changes, context.run_id)
    return replace(report, changes=ChangeSet((*changes, results.page_change(context.root, name, html))))


def _accepted(context: Context) -> list[str]:
    """The metrics that the request accepts of this kernel."""
    rows = [text.partition(":") for text in context.request.get("accept", ())]
    return [metric for name, _, metric in rows if name == context.request["name"]]


def _with_section(report: "Report", title: str, lines: list[str]) -> "Report":
    """The report, on the screen and in its file, with a section at its end, if there are lines for it."""
    if not lines:
        return report
    markdown = f"{report.markdown.rstrip()}\n\n## {title}\n\n" + "\n".join(lines) + "\n"
    changes = (replace(c, content=markdown) if c.content == report.markdown else c for c in report.changes.changes)
    return replace(report, markdown=markdown, changes=ChangeSet(tuple(changes)))


def _with_reviews(report: "Report", reviews: tuple[dict[str, str], ...]) -> "Report":
    """The report with a section on who approved what it rests on."""
    return _with_section(report, "Reviews", [f"- {review['stage']}: {_approved(review)}" for review in reviews])


def _approved(review: dict[str, str]) -> str:
    if review["how"].startswith("--"):
        return f"approved by `{review['how']}`; nobody looked at it"
    reason = " ".join(review["reason"].split())
    return f"approved by a reviewer{': ' if reason else ''}{reason}"


def _report(output: Any) -> "Report":
    from liger_dev.validator import Report

    return Report.from_json(output)


def _report_views(context: Context, output: Any, brief: bool) -> list[View]:
    return [View("", _report(output).markdown, "markdown")]


def _report_changes(context: Context, output: Any) -> ChangeSet:
    return _report(output).changes


def _report_failure(output: Any) -> str:
    return "" if _report(output).passed else "the kernel failed validation"


def _bench(context: Context) -> Any:
    from liger_dev.measuring import bench

    return bench(context.request["name"], context.root, context.say, context.request.get("options", ()))


def _plot(context: Context) -> Any:
    from liger_dev.measuring import plot

    return plot(context.request["name"], context.root)


def _roofline(context: Context) -> Any:
    from liger_dev.measuring import roofline

    return roofline(context.root)


def _page(context: Context) -> Any:
    from liger_dev.measuring import page

    return page(context.request["name"], context.root)


def _measured_views(context: Context, output: Any, brief: bool) -> list[View]:
    return [View("", output["markdown"], "markdown")]


def _measured_changes(context: Context, output: Any) -> ChangeSet:
    return ChangeSet.from_json(output["changes"])


def _measured_failure(output: Any) -> str:
    return str(output["failure"])


FETCHED = Stage("source", "looking at what was fetched", _fetched_inputs, _fetched, _fetched_views, flag="trust_url")
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
GENERATE = Stage(
    "generate",
    "generating the kernel",
    _generate_inputs,
    _generate,
    _generate_views,
    texts=_generate_texts,
    revise=_revise_file,
    retry=_retry_generation,
    changes=_changes,
)
MODIFY = Stage(
    "modify",
    "modifying the kernel",
    _modify_inputs,
    _modify,
    _generate_views,
    texts=_generate_texts,
    revise=_revise_file,
    retry=_retry_modification,
    changes=_changes,
)
VALIDATE = Stage(
    "validate",
    "validating the kernel",
    _validate_inputs,
    _validate,
    _report_views,
    changes=_report_changes,
    failure=_report_failure,
)
INIT = Stage("init", "making the workspace", _no_inputs, _skeleton, _generate_views, changes=_changes, reviewed=False)
BENCH = Stage(
    "bench",
    "measuring speed and memory",
    _no_inputs,
    _bench,
    _measured_views,
    changes=_measured_changes,
    failure=_measured_failure,
    reviewed=False,
)
PLOT = Stage("plot", "drawing", _no_inputs, _plot, _measured_views, changes=_measured_changes, reviewed=False)
PAGE = replace(PLOT, name="report", title="writing the page", make=_page)
