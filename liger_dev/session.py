"""A run and a way to review in, its end on the screen out: how every command drives a pipeline."""

from pathlib import Path
from typing import Any

import typer

from liger_dev import history
from liger_dev import pipeline
from liger_dev.errors import INTERRUPTED
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.errors import Paused
from liger_dev.pipeline import Outcome
from liger_dev.pipeline import Stage
from liger_dev.review import reviewer
from liger_dev.runs import Run
from liger_dev.screen import Screen
from liger_dev.stages import stages_of


def go_on(
    root: Path,
    run: Run,
    mode: str,
    *,
    again: str = "",
    stages: tuple[Stage, ...] = (),
    limits: dict[str, Any] = {},
) -> bool:
    """Takes a run as far as it goes, prints how it ended, and returns whether it passed.

    Args:
        mode: `yes`, `pause` or `ask`.
        again: a stage to review once more.
        stages: in place of those that the run asks for.
        limits: in place of those in the run's request: `max_cost`.
    """
    stages = stages or stages_of(run.request)
    if again and again not in [stage.name for stage in stages]:
        names = ", ".join(stage.name for stage in stages)
        raise BadInput(f"run {run.id} has no stage '{again}'", "--stage", f"name one of: {names}")
    screen = Screen()
    screen.tell(f"run {run.id}")
    hint = f"go on with: {history.command(root, f'resume {run.id}')}"
    try:
        outcome = pipeline.drive(run, root, stages, reviewer(mode, screen), screen.say, again=again, limits=limits)
    except KeyboardInterrupt:
        screen.tell(f"interrupted; {hint}")
        raise typer.Exit(INTERRUPTED) from None
    except LigerDevError as error:
        if not isinstance(error, Paused) and history.latest_output(run.events()):
            screen.tell(f"stopped; once it is mended, {hint}")
        raise
    finally:
        screen.quiet()  # a spinner that is left running hides the cursor for good
    screen.show_once(outcome.stage.views(outcome.context, outcome.output, True), outcome.stage.name)
    screen.tell(_summary(run, outcome))
    return not outcome.failure


def _summary(run: Run, outcome: Outcome) -> str:
    how = {flag: f"by {flag}, nobody looked" for flag in ("--yes", "--trust-url")}
    reviews = [f"  {row['stage']}: approved {how.get(row['how'], 'by a person')}" for row in outcome.context.reviews]
    return "\n".join([f"failed: {outcome.failure}" if outcome.failure else "passed", *reviews, f"run {run.id}"])
