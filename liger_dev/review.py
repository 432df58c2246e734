"""A stage's output in, a decision out: by `--yes`, by `--pause`, or by a person who looks, edits and approves."""

import difflib
import os
import shlex
import subprocess
import sys
import tempfile

from collections.abc import Callable
from pathlib import Path
from typing import Any

from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.pipeline import Context
from liger_dev.pipeline import Decision
from liger_dev.pipeline import Review
from liger_dev.pipeline import Stage
from liger_dev.pipeline import View
from liger_dev.records import digest
from liger_dev.screen import Screen

# The person's answer to a prompt; None when the input has ended.
Ask = Callable[[str], str | None]

_NO_RETRY = (
    "The builtin engine can't act on a remark in words, and neither can a report: both follow from files alone.\n"
    "A remark on the analyzer's or the generator's output goes to an agent: --engine claude, or auto with a key."
)


def reviewer(mode: str, screen: Screen) -> Review:
    """The review of a run: `yes` approves all, `pause` stops, `ask` asks; without a terminal `ask` is `pause`."""
    by_person = asking(screen, _ask_terminal) if mode != "pause" and sys.stdin.isatty() else pausing(screen)
    if mode == "ask" and not sys.stdin.isatty():
        screen.tell("no terminal to ask at and neither --yes nor --pause: stopping at the review as with --pause")
    return flagged(screen, approving(screen) if mode == "yes" else by_person, by_person)


def flagged(screen: Screen, usual: Review, by_person: Review) -> Review:
    """A stage with a flag of its own is approved by that flag, in any mode, or by a person, but not by `--yes`."""

    def review(stage: Stage, context: Context, output: Any) -> Decision:
        if not stage.flag:
            return usual(stage, context, output)
        option = f"--{stage.flag.replace('_', '-')}"
        if not context.request.get(stage.flag):
            screen.tell(f"stage {stage.name} waits for a person, with --yes too; {option} approves it unseen")
            return by_person(stage, context, output)
        screen.show(stage.views(context, output, True), stage.name)
        screen.tell(f"{stage.name}: approved by {option}")
        return Decision("approve", how=option)

    return review


def approving(screen: Screen) -> Review:
    """Approves everything, shows it in brief and records that nobody looked."""

    def review(stage: Stage, context: Context, output: Any) -> Decision:
        screen.show(stage.views(context, output, True), stage.name)
        screen.tell(f"{stage.name}: approved by --yes")
        return Decision("approve", how="--yes")

    return review


def pausing(screen: Screen) -> Review:
    """Shows everything and stops."""

    def review(stage: Stage, context: Context, output: Any) -> Decision:
        screen.show(stage.views(context, output, False), stage.name)
        return Decision("pause")

    return review


def asking(screen: Screen, ask: Ask) -> Review:
    """Shows everything and asks; an edit comes back as a decision, and the edited output is reviewed again.

    Of an output that a remark has led to, the difference to the last one is shown alone; the whole on demand.
    """
    differences: dict[str, View] = {}

    def review(stage: Stage, context: Context, output: Any) -> Decision:
        difference = differences.pop(digest(output), None)
        screen.show([difference] if difference else stage.views(context, output, False), stage.name)
        editable = stage.texts(context, output)
        choices = f"[a]pprove  {'[e]dit  ' if editable else ''}[r]etry REMARK  [q]uit"
        choices += "  [v]iew all" if difference else ""
        while True:
            word, _, rest = (ask(f"{stage.name}: {choices} > ") or "q").strip().partition(" ")
            match word:
                case "v" | "view":
                    screen.show(stage.views(context, output, False), stage.name)
                case "a" | "approve":
                    return Decision("approve", how="review", reason=rest.strip())
                case "q" | "quit":
                    return Decision("pause")
                case "e" | "edit" if editable:
                    revised = _edit(stage, context, output, editable, ask, screen)
                    if revised is not None:
                        return Decision("edit", revised)
                case "r" | "retry":
                    if (revised := _retry(stage, context, output, rest.strip(), screen)) is not None:
                        differences[digest(revised)] = _difference(stage, context, output, revised)
                        return Decision("edit", revised, reason=rest.strip())
                    if editable and (ask("edit the text instead? [y/N] > ") or "n").strip() in ("y", "yes"):
                        revised = _edit(stage, context, output, editable, ask, screen)
                        if revised is not None:
                            return Decision("edit", revised)
                case _:
                    screen.tell("answer a, e, r, q or v; words after a are the reason, words after r the remark")

    return review


def _retry(stage: Stage, context: Context, output: Any, remark: str, screen: Screen) -> Any | None:
    """The output that the stage's agent makes of a remark; None if there is none."""
    if not remark:
        screen.tell("say what should be otherwise: r REMARK")
        return None
    try:
        revised = stage.retry(context, output, remark)
    except LigerDevError as error:
        screen.tell(str(error))
        return None
    if revised is None:
        screen.tell(_NO_RETRY)
    return revised


def _difference(stage: Stage, context: Context, output: Any, revised: Any) -> View:
    from liger_dev.render import unstamped

    before, after = stage.texts(context, output), stage.texts(context, revised)
    pairs = [(unstamped(before.get(name, "")), unstamped(text), name) for name, text in after.items()]
    diff = "".join(text_diff(old, new, name) for old, new, name in pairs)
    return View("What the remark has changed", diff or "nothing", "diff")


def text_diff(before: str, after: str, name: str) -> str:
    """A unified diff of a text, empty if nothing differs."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"{name} (last)", f"{name} (now)"))


def _edit(stage: Stage, context: Context, output: Any, texts: dict[str, str], ask: Ask, screen: Screen) -> Any | None:
    """The output after an edit that passed its check; None if the person changed nothing or gave up."""
    name = _choose(list(texts), ask, screen)
    if name is None:
        return None
    text = texts[name]
    while True:
        edited = open_editor(text, name)
        if edited == texts[name]:
            screen.tell("nothing was changed")
            return None
        try:
            return stage.revise(context, output, name, edited)
        except LigerDevError as error:
            screen.tell(str(error))
        text = edited
        if (ask("[e]dit again, or [d]iscard the edit > ") or "d").strip() not in ("e", "edit"):
            return None


def _choose(names: list[str], ask: Ask, screen: Screen) -> str | None:
    if len(names) == 1:
        return names[0]
    screen.tell("\n".join(f"  {number}  {name}" for number, name in enumerate(names, 1)))
    answer = (ask(f"which one, 1 to {len(names)} > ") or "").strip()
    if answer.isdecimal() and 1 <= int(answer) <= len(names):
        return names[int(answer) - 1]
    screen.tell("none was chosen")
    return None


def open_editor(text: str, name: str) -> str:
    """The text after the person's editor ($VISUAL, $EDITOR or vi). Raises BadInput when the editor fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="liger-dev-edit-") as folder:
        file = Path(folder) / Path(name).name
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise BadInput(f"the editor can't be started: {error}", editor, "set EDITOR and resume the run") from None
        if code != 0:
            raise BadInput(f"the editor ended with code {code}", editor, "set EDITOR and resume the run")
        return file.read_text(encoding="utf-8")


def _ask_terminal(prompt: str) -> str | None:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line if line else None
