"""The commands about runs: look at them, approve or reject, go on."""

from typing import Annotated

import typer

from liger_dev.commands.starting import root_of
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput
from liger_dev.options import MaxCost
from liger_dev.options import Reason
from liger_dev.options import ReviewOptions
from liger_dev.options import RootDir
from liger_dev.options import RunId
from liger_dev.options import StageName


def resume(
    run: RunId,
    reviews: ReviewOptions,
    stage: Annotated[str, typer.Option("--stage", metavar="STAGE", help="Review this stage again.")] = "",
    max_cost: MaxCost = None,
    root: RootDir = None,
) -> None:
    """Go on with a run where it stopped, or review a stage again."""
    from liger_dev import runs
    from liger_dev.session import go_on

    folder = root_of(root)
    opened = runs.open_run(folder, run)
    mode = reviews.mode if reviews.yes or reviews.pause else opened.request["review"]
    limits = {} if max_cost is None else {"max_cost": max_cost}
    if limits:
        from liger_dev.agents import seat

        seat.check_budget(seat.model_of(opened.request), max_cost)
    raise typer.Exit(0 if go_on(folder, opened, mode, again=stage, limits=limits) else KERNEL_FAILED)


def list_runs(root: RootDir = None) -> None:
    """List the runs of the workspace, newest first."""
    from liger_dev import runs
    from liger_dev.overview import WIDTH

    found = runs.list_runs(root_of(root))
    for run in found:
        status = run.status()
        line = f"{run.id}  {status.state:12}{status.stage:10}".rstrip()
        below = len(line) + len(status.reason) > WIDTH - 2
        print(f"{line}\n  {status.reason}"[:200] if below else f"{line}  {status.reason}".rstrip())
    if not found:
        print("no runs yet; start one with `liger-dev new NAME`")


def show(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")] = None,
    stage: StageName = "",
    transcript: Annotated[
        bool, typer.Option("--transcript", help="What the run's agents said and did, and the cost.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of profiles instead.")] = False,
    root: RootDir = None,
) -> None:
    """Show a run, a stage's output, or the profile's schema."""
    if schema:
        return _print_schema()
    if run is None:
        raise BadInput("no run to show", todo="name one of `liger-dev runs`, or use --schema")
    from liger_dev import overview
    from liger_dev import runs
    from liger_dev.screen import Screen

    folder = root_of(root)
    opened = runs.open_run(folder, run)
    views = overview.transcript_views(opened) if transcript else overview.run_views(folder, opened, stage)
    Screen().show(views)


def approve(run: RunId, stage: StageName = "", reason: Reason = "", root: RootDir = None) -> None:
    """Approve the output that waits for a review."""
    from liger_dev import history
    from liger_dev import runs

    folder = root_of(root)
    opened = runs.open_run(folder, run)
    name = history.approve(opened, stage, reason)
    print(f"approved: {name} of run {opened.id}\ngo on with: {history.command(folder, f'resume {opened.id}')}")


def reject(run: RunId, reason: Reason, stage: StageName = "", root: RootDir = None) -> None:
    """Reject an output and take back all files of the run."""
    from liger_dev import history
    from liger_dev import runs

    folder = root_of(root)
    opened = runs.open_run(folder, run)
    name, files = history.reject(folder, opened, stage, reason)
    print(f"rejected: {name} of run {opened.id}; {len(files)} files put back")
    print("".join(f"  {path}\n" for path in files), end="")


def _print_schema() -> None:
    import json

    from liger_dev.profile import KernelProfile

    print(json.dumps(KernelProfile.model_json_schema(), indent=2))
