"""Three small stages for tests: an analyzer that shouts, a generator of two files, a validator that reads them."""

import os
import signal

from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

from liger_dev import runs
from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.pipeline import Decision
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.pipeline import drive
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.records import digest


def change(root: Path, path: str, content: str) -> Change:
    return Change(path, content, workspace.base_of(root, path))


def _analyze(context):
    return {"text": context.request["name"].upper()}


def _revise(context, output, name, text):
    if "bad" in text:
        raise BadInput("the text says bad", name, "say something else")
    return {"text": text}


def _generate(context):
    text = context.outputs["analyze"]["text"]
    shared = workspace.read(context.root, "kernels/exports.txt") or ""
    added = shared if text in shared.split() else f"{shared}{text}\n"
    files = (change(context.root, f"kernels/{text}.txt", text), change(context.root, "kernels/exports.txt", added))
    return ChangeSet(files).to_json()


def _validate(context):
    text = context.outputs["analyze"]["text"]
    kernel = workspace.read(context.root, f"kernels/{text}.txt")
    report = f"{kernel} {'fails' if text.startswith('FAIL') else 'passes'}\n" + "".join(
        f"{review['stage']}: {review['how']} {review['reason']}\n" for review in context.reviews
    )
    changes = ChangeSet((change(context.root, f"results/{text}.md", report),))
    return {"passed": "passes" in report, "report": report, "changes": changes.to_json()}


def _views(context, output, brief):
    return [View("output", str(output), "text")]


STAGES = (
    Stage(
        "analyze",
        "analyzing",
        lambda context: [context.request["name"]],
        _analyze,
        _views,
        texts=lambda context, output: {"text.txt": output["text"]},
        revise=_revise,
    ),
    Stage(
        "generate",
        "generating",
        lambda context: [digest(context.outputs["analyze"])],
        _generate,
        _views,
        changes=lambda context, output: ChangeSet.from_json(output),
    ),
    Stage(
        "validate",
        "validating",
        lambda context: [digest(context.outputs["generate"]), list(context.reviews)],
        _validate,
        _views,
        changes=lambda context, output: ChangeSet.from_json(output["changes"]),
        failure=lambda output: "" if output["passed"] else "the kernel fails",
    ),
)


@dataclass
class Driver:
    """Drives runs in a workspace; `answers` are the reviewer's, by stage, and approval is the answer without one."""

    root: Path
    stages: tuple[Stage, ...] = STAGES
    answers: dict[str, list[Decision]] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def start(self, name: str) -> runs.Run:
        return runs.create_run(self.root, {"command": "new", "name": name})

    def drive(self, run: runs.Run, again: str = ""):
        return drive(run, self.root, self.stages, self._review, self.made.append, again=again)

    def _review(self, stage: Stage, context: Any, output: Any) -> Decision:
        self.asked.append(stage.name)
        answers = self.answers.get(stage.name, [])
        return answers.pop(0) if answers else Decision("approve", how="review", reason=f"{stage.name} is right")


@dataclass(frozen=True)
class MortalRun(runs.Run):
    """A run whose process is killed at its n-th write, before it (even n) or after it (odd n)."""

    dies_at: int = -1
    steps: list[int] = field(default_factory=list)

    def record(self, event):
        self._step()
        super().record(event)
        self._step()

    def store(self, key, value):
        self._step()
        super().store(key, value)
        self._step()

    def _step(self):
        if len(self.steps) == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps.append(1)


def tree(root: Path) -> dict[str, bytes]:
    """The workspace's files by path, without the tool's own folder."""
    files = (path for path in root.rglob("*") if path.is_file() and ".liger-dev" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}
