"""A request in, its stages out: analyzer, generator and validator as the pipeline runs and shows them."""

from dataclasses import replace

from liger_dev.errors import BadInput
from liger_dev.pipeline import Stage
from liger_dev.requests import Request
from liger_dev.stages.analysis import ANALYZE
from liger_dev.stages.analysis import analysis_changes
from liger_dev.stages.files import GENERATE
from liger_dev.stages.files import INIT
from liger_dev.stages.files import MODIFY
from liger_dev.stages.report import BENCH
from liger_dev.stages.report import PAGE
from liger_dev.stages.report import PLOT
from liger_dev.stages.report import ROOFLINE
from liger_dev.stages.report import VALIDATE
from liger_dev.stages.source import FETCHED
from liger_dev.stages.tuning import TUNE


def stages_of(request: Request) -> tuple[Stage, ...]:
    """The stages that a request goes through, in order."""
    match request["command"]:
        case "new":
            return (*_looks(request), ANALYZE, GENERATE, VALIDATE)
        case "analyze":
            return (*_looks(request), replace(ANALYZE, changes=analysis_changes))
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
        case "tune":
            return (TUNE,)
        case "report":
            return (PAGE,)
        case "roofline":
            return (ROOFLINE,)
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
