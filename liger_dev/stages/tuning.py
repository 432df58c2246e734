"""Tuning as a stage: a kernel's settings are measured, and what is better is written."""

from typing import Any

from liger_dev import history
from liger_dev.errors import BadInput
from liger_dev.grading.resources import TARGETS
from liger_dev.pipeline import Context
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.records import ChangeSet
from liger_dev.runs import Run
from liger_dev.stages.files import no_inputs


def check_archs(archs: list[str]) -> None:
    """Raises BadInput for a target that nothing here compiles for."""
    for arch in archs:
        if arch not in TARGETS:
            raise BadInput(f"'{arch}' is no target", "--arch", f"name one of: {', '.join(TARGETS)}")


def is_spent(run: Run) -> bool:
    """Whether a run of `tune` ended with its budget."""
    latest = history.latest_output(run.events(), TUNE.name)
    output = run.load(latest["key"]) if latest else None
    return bool(output and output["spent"])


def _tune(context: Context) -> Any:
    from liger_dev.tuning import tune

    return tune(context.request["name"], context.root, context.say, context.request)


def _views(context: Context, output: Any, brief: bool) -> list[View]:
    return [View("", output["markdown"], "markdown")]


def _changes(context: Context, output: Any) -> ChangeSet:
    return ChangeSet.from_json(output["changes"])


def _failure(output: Any) -> str:
    return str(output["failure"])


TUNE = Stage("tune", "measuring settings", no_inputs, _tune, _views, changes=_changes, failure=_failure, reviewed=False)
