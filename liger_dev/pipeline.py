"""A run in, reviewed outputs and applied files out: stages in order, each resumable and each with a review."""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import Literal

from liger_dev import __version__
from liger_dev import history
from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.errors import Paused
from liger_dev.errors import StaleWorkspace
from liger_dev.records import ChangeSet
from liger_dev.records import digest
from liger_dev.runs import Run

# Another run may write between rendering and applying; three renderings in a row that are overtaken are no accident.
RENDERINGS = 3

Say = Callable[[str], None]


@dataclass(frozen=True)
class View:
    """A part of what a reviewer sees; `language` is `python`, `yaml`, `diff`, `markdown` or `text`."""

    title: str
    text: str
    language: str


@dataclass(frozen=True)
class Context:
    """What a stage may read: the workspace, the request, the reviewed outputs of earlier stages and their reviews."""

    root: Path
    run_id: str
    request: dict[str, Any]
    say: Say
    outputs: dict[str, Any] = field(default_factory=dict)
    reviews: tuple[dict[str, str], ...] = ()


def _no_changes(context: Context, output: Any) -> ChangeSet:
    return ChangeSet(())


def _no_texts(context: Context, output: Any) -> dict[str, str]:
    return {}


def _never_fails(output: Any) -> str:
    return ""


def _no_revision(context: Context, output: Any, name: str, text: str) -> Any:
    raise BadInput("this stage has nothing to edit")


def _no_retry(context: Context, output: Any, remark: str) -> Any:
    return None


@dataclass(frozen=True)
class Stage:
    """One arrow of the pipeline. Its output is JSON and must follow from `inputs` alone.

    `inputs` gives what the output depends on; `make` makes the output; `views` is what a reviewer sees (`brief`
    where nobody looks closely); `texts` are the texts that a reviewer may edit, by name; `revise` checks one edited
    text and returns the new output (raises LigerDevError); `retry` takes a remark in words, and gives the output that an
    agent makes of it, or None where no agent can be asked; `changes` is what is written after the approval;
    `failure` says what is wrong with an output that ends the run, "" otherwise; such an output is not reviewed, and
    nor is any of a stage that is not `reviewed`. `flag` names the field of the request that approves the output where
    `--yes` must not, "" if `--yes` does.
    """

    name: str
    title: str
    inputs: Callable[[Context], Any]
    make: Callable[[Context], Any]
    views: Callable[[Context, Any, bool], list[View]]
    texts: Callable[[Context, Any], dict[str, str]] = _no_texts
    revise: Callable[[Context, Any, str, str], Any] = _no_revision
    retry: Callable[[Context, Any, str], Any] = _no_retry
    changes: Callable[[Context, Any], ChangeSet] = _no_changes
    failure: Callable[[Any], str] = _never_fails
    reviewed: bool = True
    flag: str = ""


@dataclass(frozen=True)
class Decision:
    """What a review ended with; `output` is the edited output, `how` and `reason` go into the record."""

    kind: Literal["approve", "edit", "pause"]
    output: Any = None
    how: str = ""
    reason: str = ""


Review = Callable[[Stage, Context, Any], Decision]


@dataclass(frozen=True)
class Outcome:
    """How far a run came: the context with all outputs, the last stage, and what failed there ("" = passed)."""

    context: Context
    stage: Stage
    failure: str

    @property
    def output(self) -> Any:
        return self.context.outputs[self.stage.name]


def drive(
    run: Run,
    root: Path,
    stages: tuple[Stage, ...],
    review: Review,
    say: Say,
    *,
    again: str = "",
    limits: dict[str, Any] = {},
) -> Outcome:
    """Takes a run as far as it goes; what is done already is taken from the run, so resuming is driving again.

    `again` names a stage whose approval is set aside; `limits` take the place of those in the request, and are kept
    with the run. Raises Paused at a review that nobody has answered, BadInput if a stage was rejected, and whatever a
    stage raises.
    """
    assert stages, "a pipeline has a stage"
    with run.lock():
        workspace.recover(root)
        if rejected := history.rejection(run.events(), except_of=again):
            raise _rejected(run, rejected)
        if limits:
            run.record({"event": "limits", **limits})
        context = Context(root, run.id, {**run.request, **history.limits(run.events())}, say)
        failure = ""
        try:
            for stage in stages:
                output = _settle(stage, context, run, review, again=stage.name == again)
                reviews = (*context.reviews, *_review_of(run, stage, output))
                context = replace(context, outputs={**context.outputs, stage.name: output}, reviews=reviews)
                if failure := stage.failure(output):
                    break
        except KeyboardInterrupt:
            run.record({"event": "interrupted", "reason": "by the keyboard"})
            raise
        _record_end(run, {"event": "failed" if failure else "finished", "stage": stage.name, "reason": failure})
        return Outcome(context, stage, failure)


def _settle(stage: Stage, context: Context, run: Run, review: Review, *, again: bool) -> Any:
    for rendering in range(1, RENDERINGS + 1):
        output = _reviewed(stage, context, run, review, again=again and rendering == 1)
        try:
            _apply(stage, context, run, output)
            return output
        except StaleWorkspace as stale:
            run.record({"event": "stale", "stage": stage.name, "where": stale.where})
            if rendering == RENDERINGS:
                _record_stop(run, stage, stale)
                raise
            context.say(f"{stage.name}: {stale.where or 'the workspace'} changed meanwhile, rendering again")
    raise AssertionError("the last rendering returns or raises")


def _reviewed(stage: Stage, context: Context, run: Run, review: Review, *, again: bool) -> Any:
    while True:
        key, output = _output(stage, context, run)
        mark = digest(output)
        if not stage.reviewed or stage.failure(output):
            return output
        current = history.verdict(run.events(), stage.name, mark)
        if current and not again:
            if current["event"] == "rejected":
                raise _rejected(run, current)
            return output
        run.record({"event": "waiting", "stage": stage.name, "mark": mark})
        decision = review(stage, context, output)
        match decision.kind:
            case "approve":
                run.record(history.approval(stage.name, mark, decision.how, decision.reason))
                return output
            case "edit":
                _record_edit(stage, run, key, decision)
            case "pause":
                raise _paused(run, stage)


def _output(stage: Stage, context: Context, run: Run) -> tuple[str, Any]:
    """The key of the stage's inputs, and its output as last edited: from the run, or made now."""
    events = run.events()
    key = digest([stage.name, __version__, stage.inputs(context), history.stale_count(events, stage.name)])
    place = history.effective_key(events, key)
    output = run.load(place)
    if output is None:
        context.say(stage.title)
        run.record({"event": "stage", "stage": stage.name})
        try:
            output = stage.make(context)
        except LigerDevError as error:
            _record_stop(run, stage, error)
            raise
        run.store(place, output)
        # What was stored and not what was made: a resumed run sees the same value, lists for tuples included.
        output = run.load(place)
        assert output is not None, f"the output of {stage.name} was stored and can't be loaded"
    mark = digest(output)
    latest = history.latest_output(events, stage.name)
    if latest is None or (latest["key"], latest["mark"]) != (place, mark):
        run.record({"event": "output", "stage": stage.name, "key": place, "mark": mark})
    return key, output


def _record_end(run: Run, event: history.Event) -> None:
    """Records how the run ended, unless that is the last thing recorded: resuming a finished run adds nothing."""
    last = (run.events() or [{}])[-1]
    if any(last.get(name) != value for name, value in event.items()):
        run.record(event)


def _record_stop(run: Run, stage: Stage, error: LigerDevError) -> None:
    run.record({"event": "interrupted", "stage": stage.name, "reason": error.what})


def _record_edit(stage: Stage, run: Run, key: str, decision: Decision) -> None:
    mark = digest(decision.output)
    place = digest([key, mark])
    run.store(place, decision.output)
    event = {"event": "edited", "stage": stage.name, "of": key, "key": place, "mark": mark}
    run.record({**event, "reason": decision.reason} if decision.reason else event)


def _apply(stage: Stage, context: Context, run: Run, output: Any) -> None:
    mark = digest(output)
    changes = stage.changes(context, output)
    if not changes.changes or history.is_applied(run.events(), stage.name, mark):
        return
    # A kill between writing and recording brings us here again; `apply` leaves a file that is in place alone.
    workspace.apply(context.root, changes, run.id)
    run.record({"event": "applied", "stage": stage.name, "mark": mark, "files": [c.path for c in changes.changes]})


def _review_of(run: Run, stage: Stage, output: Any) -> list[dict[str, str]]:
    found = history.verdict(run.events(), stage.name, digest(output))
    return [{"stage": stage.name, "how": found["how"], "reason": found["reason"]}] if found else []


def _paused(run: Run, stage: Stage) -> Paused:
    def line(words: str) -> str:
        return history.command(run.root, words)

    here = f"{run.id} --stage {stage.name}"
    return Paused(
        f"run {run.id} waits for the review of stage {stage.name}",
        todo=f"{line(f'approve {here}')}\n    then {line(f'resume {run.id}')}"
        f"\n    or   {line(f'reject {here} --reason ...')}\n    look {line(f'show {here}')}",
    )


def _rejected(run: Run, event: history.Event) -> BadInput:
    """The refusal to go on; what a kill has left of the run's files is taken back first."""
    history.withdraw(run.root, run)
    back = history.command(run.root, f"approve {run.id} --stage {event['stage']}")
    again = history.command(run.root, f"resume {run.id} --stage {event['stage']}")
    return BadInput(
        f"stage {event['stage']} of run {run.id} was rejected: {event['reason']}",
        todo=f"start a new run; or withdraw the rejection: {back}\n    or look again: {again}",
    )
