"""The commands that make kernels: all three stages, one of them, or a change of what is there."""

import time

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Annotated
from typing import Any

import typer

from liger_dev.commands.starting import passes
from liger_dev.commands.starting import root_of
from liger_dev.commands.starting import shapes_of
from liger_dev.commands.starting import start
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.options import AgentOptions
from liger_dev.options import Engine
from liger_dev.options import From
from liger_dev.options import Name
from liger_dev.options import NameOrWords
from liger_dev.options import Overwrite
from liger_dev.options import ReviewOptions
from liger_dev.options import RootDir
from liger_dev.options import SourceOptions
from liger_dev.options import ValidateOptions
from liger_dev.screen import tell_error

if TYPE_CHECKING:
    from liger_dev.ci import Judged
    from liger_dev.records import Source


def new(
    name: NameOrWords,
    source: SourceOptions,
    agents: AgentOptions,
    reviews: ReviewOptions,
    validation: ValidateOptions,
    overwrite: Overwrite = False,
    root: RootDir = None,
) -> None:
    """Make a kernel: analyze, generate, validate; a review after each."""
    options = {"overwrite": overwrite, **validation.to_request(), **agents.to_request()}
    _new("new", name, source, reviews, root, options)


def analyze(
    name: NameOrWords, source: SourceOptions, agents: AgentOptions, reviews: ReviewOptions, root: RootDir = None
) -> None:
    """Stage 1 alone: write an operation's reference and profile."""
    _new("analyze", name, source, reviews, root, agents.to_request())


def generate(
    name: Name, agents: AgentOptions, reviews: ReviewOptions, overwrite: Overwrite = False, root: RootDir = None
) -> None:
    """Stage 2 alone: write a kernel from its reference and profile.

    Reads profiles/NAME.yaml and kernels/reference/NAME.py."""
    from liger_dev import requests

    folder = root_of(root)
    options = {"review": reviews.mode, "overwrite": overwrite, **agents.to_request()}
    start(folder, requests.generate_request(folder, name, **options))


def modify(
    name: Name,
    agents: AgentOptions,
    reviews: ReviewOptions,
    validation: ValidateOptions,
    wish: Annotated[str, typer.Argument(metavar="[WISH]", help="What to change, in words; takes an agent.")] = "",
    source: From = None,
    overwrite: Overwrite = False,
    root: RootDir = None,
) -> None:
    """Change a kernel in words, or trace its source again with --from; validate in full."""
    from liger_dev import requests
    from liger_dev import sources

    if bool(wish) == bool(source):
        raise BadInput("say either what to change or where the new source is", "modify", "give WISH or --from SOURCE")
    folder = root_of(root)
    options = {"review": reviews.mode, "overwrite": overwrite, **validation.to_request(), **agents.to_request()}
    if wish:
        start(folder, requests.modify_request(folder, name, wish, **options))
    found = sources.resolve(name, source, shapes={}, init=[], cwd=Path.cwd())
    start(folder, requests.retrace_request(folder, name, found, **{**options, "engine": "builtin"}))


def validate(
    validation: ValidateOptions,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every kernel of the workspace.")] = False,
    ci: Annotated[bool, typer.Option("--ci", help="Print GitHub's annotations.")] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts as JUnit XML.")
    ] = None,
    agents: AgentOptions = AgentOptions(engine=Engine.builtin),
    root: RootDir = None,
) -> None:
    """Stage 3 alone: test and measure kernels, write Results."""
    from liger_dev import requests
    from liger_dev.ci import annotations
    from liger_dev.ci import junit as junit_xml
    from liger_dev.ci import table

    folder = root_of(root)
    chosen = sorted(path.stem for path in (folder / "profiles").glob("*.yaml")) if every else list(names or ())
    if not chosen:
        raise BadInput("no kernel to validate", str(folder), "name one, or use --all; `liger-dev list` shows them")
    options = {"review": "yes", **validation.to_request(), **agents.to_request()}
    several = ci or junit is not None or len(chosen) > 1
    judged = [_judged(folder, requests.validate_request(name, **options), several) for name in chosen]
    if len(chosen) > 1:
        print(table(judged))
    if ci:
        print("\n".join(annotations(judged)))
    if junit is not None:
        _write(junit, junit_xml(judged))
    raise typer.Exit(0 if all(one.passed for one in judged) else KERNEL_FAILED)


def _judged(root: Path, request: dict[str, Any], go_on: bool) -> "Judged":
    """One kernel's validation. With `go_on`, what stops it is its failure, so that the others are judged too."""
    from liger_dev import workspace
    from liger_dev.ci import Judged

    name, start = request["name"], time.monotonic()
    try:
        passed = passes(root, request)
    except LigerDevError as error:
        if not go_on:
            raise
        tell_error(f"liger-dev: {error}")
        return Judged(name, False, "", error.what, time.monotonic() - start)
    markdown = workspace.read(root, f"benchmark/results/{name}.md") or ""
    return Judged(name, passed, markdown, seconds=time.monotonic() - start)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the file can't be written: {error.strerror}", str(path), "name another one") from None


def _new(
    command: str, name: str, given: SourceOptions, reviews: ReviewOptions, root: Path | None, options: dict[str, Any]
) -> None:
    from liger_dev import requests

    folder, mode = root_of(root), reviews.mode
    if given.source is None:
        name, given = _named(name, given)
    options = {"review": mode, "trust_url": given.trust_url, **options}
    start(folder, requests.new_request(command, name, _source(name, given, options), **options))


def _named(name: str, given: SourceOptions) -> tuple[str, SourceOptions]:
    """A name, and the source if words stand where a name should: they are the source, and the name is made of them."""
    from liger_dev.agents import prose

    if not prose.is_words(name):
        return name, given
    made = prose.name_of(name)
    tell_error(f'the operation is called {made}; for another name: liger-dev new NAME --from "…"')
    return made, replace(given, source=name)


def _source(name: str, given: SourceOptions, options: dict[str, Any]) -> "Source":
    """The source as code, or as words where an agent may be asked. Raises BadInput."""
    from liger_dev import sources
    from liger_dev.agents import engine
    from liger_dev.agents.prose import prose_source

    shapes, init, cwd = shapes_of(given.shape), list(given.init or ()), Path.cwd()
    asks = engine.asks(options)
    try:
        return sources.resolve(name, given.source, shapes=shapes, init=init, cwd=cwd, part=given.part, words=asks)
    except BadInput:
        found = prose_source(given.source, cwd) if given.source else None
        if found is None or not asks:
            raise
        return found
