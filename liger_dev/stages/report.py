"""The stages whose output is a report: validator, measurements, plots and pages."""

from dataclasses import replace
from typing import TYPE_CHECKING
from typing import Any

from liger_dev.pipeline import Context
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.records import ChangeSet
from liger_dev.records import digest
from liger_dev.stages.analysis import seat_inputs
from liger_dev.stages.files import no_inputs

if TYPE_CHECKING:
    from liger_dev.validator import Report


def _validate_inputs(context: Context) -> Any:
    options = [*(context.request[key] for key in ("name", "benchmark", "ncu")), _accepted(context)]
    written = context.outputs.get("modify") or context.outputs.get("generate", "")
    return [options, digest(written), list(context.reviews), seat_inputs(context)]


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
    return _with_page(with_reviews(report, context.reviews), context).to_json()


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


def with_reviews(report: "Report", reviews: tuple[dict[str, str], ...]) -> "Report":
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


VALIDATE = Stage(
    "validate",
    "validating the kernel",
    _validate_inputs,
    _validate,
    _report_views,
    changes=_report_changes,
    failure=_report_failure,
)
BENCH = Stage(
    "bench",
    "measuring speed and memory",
    no_inputs,
    _bench,
    _measured_views,
    changes=_measured_changes,
    failure=_measured_failure,
    reviewed=False,
)
PLOT = Stage("plot", "drawing", no_inputs, _plot, _measured_views, changes=_measured_changes, reviewed=False)
PAGE = replace(PLOT, name="report", title="writing the page", make=_page)
ROOFLINE = replace(PLOT, make=_roofline)
