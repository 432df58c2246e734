"""The command line: what is typed in, one function called, its answer printed, its exit code given."""

import sys
import traceback

from pathlib import Path
from typing import TYPE_CHECKING
from typing import Annotated
from typing import Any
from typing import NoReturn

import typer

from liger_dev import __version__
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.options import Engine
from liger_dev.options import EngineName
from liger_dev.options import From
from liger_dev.options import Init
from liger_dev.options import MaxCost
from liger_dev.options import Model
from liger_dev.options import Name
from liger_dev.options import Ncu
from liger_dev.options import NoBenchmark
from liger_dev.options import Overwrite
from liger_dev.options import Part
from liger_dev.options import Pause
from liger_dev.options import RootDir
from liger_dev.options import RunId
from liger_dev.options import Shape
from liger_dev.options import StageName
from liger_dev.options import Transcript
from liger_dev.options import TrustUrl
from liger_dev.options import Yes

if TYPE_CHECKING:
    from liger_dev.records import Source

_EXIT_CODES = """Exit codes: 0 passed; 1 the kernel failed validation, or `check` found something; 2 bad input,
an unusable environment or a bug of liger-dev; 3 paused at a review; 4 budget or limit reached; 130 interrupted."""

app = typer.Typer(
    name="liger-dev",
    help="From a PyTorch operation to a Triton kernel that a maintainer can merge.",
    epilog=_EXIT_CODES,
    add_completion=False,
    no_args_is_help=True,
    # Rich's help takes three times as long to import as all the rest; it is kept for results on a terminal.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> NoReturn:
    """The program. Every failure becomes a message and an exit code here, and a traceback only with --debug."""
    debug = "--debug" in sys.argv[1:]
    try:
        app(args=[word for word in sys.argv[1:] if word != "--debug"], prog_name="liger-dev")
    except LigerDevError as error:
        if debug:
            traceback.print_exc()
        print(f"liger-dev: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as bug:  # the program's last line: Python's own exit code 1 would mean "the kernel failed"
        if debug:
            traceback.print_exc()
        line = str(bug).partition("\n")[0]
        print(
            f"liger-dev: this is a bug of liger-dev: {type(bug).__name__}: {line}\n"
            "  do:    run again with --debug and report what it prints",
            file=sys.stderr,
        )
        sys.exit(BAD_INPUT)
    sys.exit(0)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"liger-dev {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass  # `main` has taken --debug out already; the option is here for --help


@app.command()
def new(
    name: Name,
    source: From = None,
    engine: EngineName = Engine.auto,
    root: RootDir = None,
    yes: Yes = False,
    pause: Pause = False,
    no_benchmark: NoBenchmark = False,
    ncu: Ncu = False,
    shape: Shape = None,
    init: Init = None,
    part: Part = 0,
    trust_url: TrustUrl = False,
    overwrite: Overwrite = False,
    model: Model = "",
    max_cost: MaxCost = None,
) -> None:
    """Make a kernel: analyze, generate, validate; a review after each."""
    options = {"overwrite": overwrite, "benchmark": not no_benchmark, "ncu": ncu, "trust_url": trust_url}
    options |= _agents(engine, model, max_cost)
    _new("new", name, source, root, _mode(yes, pause), shape, init, part, options)


@app.command()
def analyze(
    name: Name,
    source: From = None,
    engine: EngineName = Engine.auto,
    root: RootDir = None,
    yes: Yes = False,
    pause: Pause = False,
    shape: Shape = None,
    init: Init = None,
    part: Part = 0,
    trust_url: TrustUrl = False,
    model: Model = "",
    max_cost: MaxCost = None,
) -> None:
    """Stage 1 alone: write an operation's reference and profile."""
    options = {"trust_url": trust_url, **_agents(engine, model, max_cost)}
    _new("analyze", name, source, root, _mode(yes, pause), shape, init, part, options)


@app.command()
def generate(
    name: Name,
    root: RootDir = None,
    yes: Yes = False,
    pause: Pause = False,
    overwrite: Overwrite = False,
    engine: EngineName = Engine.auto,
    model: Model = "",
    max_cost: MaxCost = None,
) -> None:
    """Stage 2 alone: write a kernel from its reference and profile.

    Reads profiles/NAME.yaml and kernels/reference/NAME.py."""
    from liger_dev import requests

    folder = _root(root)
    options = {"review": _mode(yes, pause), "overwrite": overwrite, **_agents(engine, model, max_cost)}
    _start(folder, requests.generate_request(folder, name, **options))


@app.command()
def modify(
    name: Name,
    wish: Annotated[str, typer.Argument(metavar="[WISH]", help="What to change, in words; takes an agent.")] = "",
    source: From = None,
    engine: EngineName = Engine.auto,
    root: RootDir = None,
    yes: Yes = False,
    pause: Pause = False,
    no_benchmark: NoBenchmark = False,
    ncu: Ncu = False,
    overwrite: Overwrite = False,
    model: Model = "",
    max_cost: MaxCost = None,
) -> None:
    """Change a kernel in words, or trace its source again with --from; validate in full."""
    from liger_dev import requests
    from liger_dev import sources

    if bool(wish) == bool(source):
        raise BadInput("say either what to change or where the new source is", "modify", "give WISH or --from SOURCE")
    folder = _root(root)
    options = {"review": _mode(yes, pause), "benchmark": not no_benchmark, "ncu": ncu, "overwrite": overwrite}
    options |= _agents(engine, model, max_cost)
    if wish:
        _start(folder, requests.modify_request(folder, name, wish, **options))
    found = sources.resolve(name, source, shapes={}, init=[], cwd=Path.cwd())
    _start(folder, requests.retrace_request(folder, name, found, **{**options, "engine": "builtin"}))


@app.command()
def validate(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every kernel of the workspace.")] = False,
    root: RootDir = None,
    no_benchmark: NoBenchmark = False,
    ncu: Ncu = False,
    engine: EngineName = Engine.builtin,
    model: Model = "",
    max_cost: MaxCost = None,
) -> None:
    """Stage 3 alone: test and measure kernels, write Results."""
    from liger_dev import requests

    folder = _root(root)
    chosen = _profile_names(folder) if every else list(names or ())
    if not chosen:
        raise BadInput("no kernel to validate", str(folder), "name one, or use --all; `liger-dev list` shows them")
    options = {"review": "yes", "benchmark": not no_benchmark, "ncu": ncu, **_agents(engine, model, max_cost)}
    failed = [name for name in chosen if not _drive(folder, requests.validate_request(name, **options))]
    if len(chosen) > 1:
        print(
            f"{len(chosen) - len(failed)} of {len(chosen)} passed"
            + (f"; failed: {', '.join(failed)}" if failed else "")
        )
    raise typer.Exit(KERNEL_FAILED if failed else 0)


@app.command()
def resume(
    run: RunId,
    root: RootDir = None,
    yes: Yes = False,
    pause: Pause = False,
    stage: Annotated[str, typer.Option("--stage", metavar="STAGE", help="Review this stage again.")] = "",
    max_cost: MaxCost = None,
) -> None:
    """Go on with a run where it stopped, or review a stage again."""
    from liger_dev import runs
    from liger_dev.session import go_on

    folder = _root(root)
    opened = runs.open_run(folder, run)
    mode = _mode(yes, pause) if yes or pause else opened.request["review"]
    limits = {} if max_cost is None else {"max_cost": max_cost}
    raise typer.Exit(0 if go_on(folder, opened, mode, again=stage, limits=limits) else KERNEL_FAILED)


@app.command("runs")
def list_runs(root: RootDir = None) -> None:
    """List the runs of the workspace, newest first."""
    from liger_dev import runs

    found = runs.list_runs(_root(root))
    for run in found:
        status = run.status()
        print(f"{run.id}  {status.state:12}{status.stage:10}{status.reason}".rstrip()[:200])
    if not found:
        print("no runs yet; start one with `liger-dev new NAME`")


@app.command()
def show(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")] = None,
    root: RootDir = None,
    stage: StageName = "",
    transcript: Transcript = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of profiles instead.")] = False,
) -> None:
    """Show a run, a stage's output, or the profile's schema."""
    if schema:
        _print_schema()
    elif run is None:
        raise BadInput("no run to show", todo="name one of `liger-dev runs`, or use --schema")
    else:
        from liger_dev import overview
        from liger_dev import runs
        from liger_dev.screen import Screen

        folder = _root(root)
        opened = runs.open_run(folder, run)
        views = overview.transcript_views(opened) if transcript else overview.run_views(folder, opened, stage)
        Screen().show(views)


@app.command()
def approve(
    run: RunId,
    root: RootDir = None,
    stage: StageName = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.")] = "",
) -> None:
    """Approve the output that waits for a review."""
    from liger_dev import history
    from liger_dev import runs

    folder = _root(root)
    opened = runs.open_run(folder, run)
    name = history.approve(opened, stage, reason)
    print(f"approved: {name} of run {opened.id}\ngo on with: {history.command(folder, f'resume {opened.id}')}")


@app.command()
def reject(
    run: RunId,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept with the run.")],
    root: RootDir = None,
    stage: StageName = "",
) -> None:
    """Reject an output and take back all files of the run."""
    from liger_dev import history
    from liger_dev import runs

    folder = _root(root)
    opened = runs.open_run(folder, run)
    name, files = history.reject(folder, opened, stage, reason)
    print(f"rejected: {name} of run {opened.id}; {len(files)} files put back")
    print("".join(f"  {path}\n" for path in files), end="")


@app.command()
def bench(name: Name, root: RootDir = None) -> None:
    """Measure a kernel's speed and memory; needs a GPU."""
    from liger_dev import requests

    _start(_root(root), {**requests.measure_request("bench", name), "review": "yes"})


@app.command()
def plot(name: Name, root: RootDir = None) -> None:
    """Draw a kernel's plots from the measurements."""
    from liger_dev import requests

    _start(_root(root), {**requests.measure_request("plot", name), "review": "yes"})


@app.command()
def check(names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None, root: RootDir = None) -> None:
    """Find generated files that are stale or edited by hand."""
    from liger_dev.overview import check_lines

    lines = check_lines(_root(root), list(names or ()))
    print("\n".join(lines) if lines else "all generated files are as generated")
    raise typer.Exit(KERNEL_FAILED if lines else 0)


@app.command("list")
def list_operations(
    root: RootDir = None,
    ops: Annotated[
        bool, typer.Option("--ops", help="List the ATen operations that the compiler knows instead.")
    ] = False,
) -> None:
    """List the known operations; * marks what is generated."""
    from liger_dev.overview import operation_lines
    from liger_dev.overview import row_lines

    print("\n".join(row_lines() if ops else operation_lines(_root_or_none(root))))


@app.command()
def grade(
    op_file: Annotated[Path, typer.Argument(metavar="OP_FILE", help="A file with Triton kernels and what calls them.")],
    reference: Annotated[str, typer.Option("--reference", metavar="FILE[:NAME]", help="What it must agree with.")],
    function: Annotated[str, typer.Option("--function", metavar="NAME", help="What to call in OP_FILE.")] = "",
    seed: Annotated[
        str, typer.Option("--seed", metavar="N", help="A number, or `fresh`. [default: from the files]")
    ] = "",
    allow: Annotated[list[str] | None, typer.Option("--allow", metavar="SUBJECT", help="Accept a finding.")] = None,
    shape: Shape = None,
    init: Init = None,
) -> None:
    """Grade a kernel that was made elsewhere: is it right, and is it really the kernel?"""
    from liger_dev import grader_report
    from liger_dev.gate import gpu_name
    from liger_dev.grader import grade_file
    from liger_dev.grader import read_reference
    from liger_dev.screen import Screen

    if not op_file.is_file():
        raise BadInput("there is no such file", str(op_file), "name a Python file with @triton.jit kernels")
    screen = Screen()
    screen.say("reading the reference")
    found = read_reference(reference, dict(_pair(item) for item in shape or ()), list(init or ()), Path.cwd())
    screen.say("grading")
    verdict = grade_file(op_file, found, function=function, seed=seed, device=gpu_name(), allow=list(allow or ()))
    screen.quiet()
    print("\n".join(grader_report.lines(verdict)))
    raise typer.Exit(0 if verdict.passed else KERNEL_FAILED)


@app.command()
def coverage(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of reference files.")],
    run: Annotated[bool, typer.Option("--run", help="Also run each op on the CPU and compare it.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the rows as JSON.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="The time limit of a file.")] = 120,
) -> None:
    """Say which of a folder's references can be compiled, and why not."""
    from liger_dev import coverage as covering
    from liger_dev.sandbox import Limits
    from liger_dev.screen import Screen

    screen = Screen()
    files = covering.reference_files(directory)
    rows = covering.cover(files, run=run, limits=Limits(seconds=seconds), say=screen.say)
    screen.quiet()
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(covering.rich_table(rows))
    else:
        print("\n".join(covering.table(rows)))
    print("\n".join(["", *covering.summary(rows)]))
    if json_file is not None:
        try:
            json_file.write_text(covering.to_json(rows), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"the file can't be written: {error.strerror}", str(json_file), "name another one") from None


@app.command()
def doctor() -> None:
    """Say what is installed here, and what will and won't work."""
    from liger_dev.doctor import diagnose
    from liger_dev.overview import finding_lines
    from liger_dev.screen import Screen

    screen = Screen()
    screen.say("looking at torch, triton and the GPU")
    findings = diagnose()
    screen.quiet()
    print("\n".join(finding_lines(findings)))
    raise typer.Exit(BAD_INPUT if any(finding.state == "broken" for finding in findings) else 0)


@app.command()
def init(directory: Annotated[Path, typer.Argument(metavar="[DIR]")] = Path(".")) -> None:
    """Make a workspace: the folders and files that kernels share."""
    from liger_dev import requests

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"the folder can't be made: {error.strerror}", str(directory), "name another one") from None
    _start(directory.resolve(), {**requests.init_request(), "review": "yes"})


def _new(
    command: str,
    name: str,
    source: str | None,
    root: Path | None,
    mode: str,
    shape: list[str] | None,
    init: list[str] | None,
    part: int,
    options: dict[str, Any],
) -> None:
    from liger_dev import requests
    from liger_dev import sources

    folder = _root(root)
    shapes = dict(_pair(item) for item in shape or ())
    try:
        found = sources.resolve(name, source, shapes=shapes, init=list(init or ()), cwd=Path.cwd(), part=part)
    except BadInput:
        found = _prose(source, options)
    _start(folder, requests.new_request(command, name, found, review=mode, **options))


def _prose(source: str | None, options: dict[str, Any]) -> "Source":
    """The source as words for an agent; called while its refusal as code is handled, which stands if it is none."""
    from liger_dev.agents import engine

    found = engine.prose_source(source, Path.cwd()) if source else None
    if found is None or not engine.asks(options):
        raise
    return found


def _agents(engine: Engine, model: str, max_cost: float | None) -> dict[str, Any]:
    """What a request says of agents. A budget that can't be kept and a missing key are refused before anything begins."""
    if max_cost is not None or engine is Engine.claude:
        from liger_dev.agents import seat

        seat.check_budget(seat.model_of({"model": model}), max_cost)
        seat.check_key(engine.value)
    return {"engine": engine.value, "model": model, "max_cost": max_cost}


def _pair(item: str) -> tuple[str, str]:
    tensor, equals, axes = item.partition("=")
    if not equals:
        raise BadInput(f"'{item}' is no shape", "--shape", "name the tensor and its axes: --shape x=B,T,H")
    return tensor.strip(), axes


def _start(root: Path, request: dict[str, Any]) -> NoReturn:
    raise typer.Exit(0 if _drive(root, request) else KERNEL_FAILED)


def _drive(root: Path, request: dict[str, Any]) -> bool:
    from liger_dev import runs
    from liger_dev.session import go_on

    return go_on(root, runs.create_run(root, request), request["review"])


def _mode(yes: bool, pause: bool) -> str:
    if yes and pause:
        raise BadInput("--yes and --pause exclude each other", "", "give one of them")
    return "yes" if yes else "pause" if pause else "ask"


def _root(given: Path | None) -> Path:
    from liger_dev import workspace

    if given is None:
        return workspace.find_root(Path.cwd())
    if not given.is_dir():
        raise BadInput("there is no such folder", str(given), f"make it a workspace: liger-dev init {given}")
    return given.resolve()


def _root_or_none(given: Path | None) -> Path | None:
    try:
        return _root(given)
    except BadInput:
        if given is not None:
            raise
        return None


def _profile_names(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "profiles").glob("*.yaml"))


def _print_schema() -> None:
    import json

    from liger_dev.profile import KernelProfile

    print(json.dumps(KernelProfile.model_json_schema(), indent=2))
