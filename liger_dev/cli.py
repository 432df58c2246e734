"""The command line: what is typed in, one function called, its answer printed, its exit code given."""

import sys
import traceback

from enum import Enum
from pathlib import Path
from typing import Annotated
from typing import Any
from typing import NoReturn

import typer

from liger_dev import __version__
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError

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


class Engine(str, Enum):
    """Who fills the agents' seats."""

    auto = "auto"
    builtin = "builtin"
    claude = "claude"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The operation's name, such as rms_norm.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")]
RootDir = Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The workspace. [default: found upwards]")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="FILE.py[:NAME], MODULE:NAME, an expression, https://…/FILE.py[:NAME] or - (standard input); "
        "else the catalogue.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Approve all reviews; the report says so.")]
Pause = Annotated[bool, typer.Option("--pause", help="Stop with exit code 3 at the first review.")]
StageName = Annotated[str, typer.Option("--stage", metavar="STAGE", help="source, analyze, generate or validate.")]
NoBenchmark = Annotated[bool, typer.Option("--no-benchmark", help="Leave the benchmark out.")]
Ncu = Annotated[bool, typer.Option("--ncu", help="Profile with ncu.")]
Shape = Annotated[list[str] | None, typer.Option("--shape", metavar="x=B,T,H", help="A tensor's axes; repeatable.")]
Init = Annotated[list[str] | None, typer.Option("--init", metavar="k=v", help="A module's init argument; repeatable.")]
Part = Annotated[int, typer.Option("--part", metavar="N", min=0, help="Which part to cut out of a module.")]
TrustUrl = Annotated[bool, typer.Option("--trust-url", help="Run a text from a URL before a person has seen it.")]
EngineName = Annotated[Engine, typer.Option("--engine", help="builtin: the compiler, no key needed.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", "--force", help="Also replace generated files that were edited by hand.")
]


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
) -> None:
    """Make a kernel: analyze, generate, validate; a review after each."""
    options = {"overwrite": overwrite, "benchmark": not no_benchmark, "ncu": ncu, "trust_url": trust_url}
    _new("new", name, source, engine, root, _mode(yes, pause), shape, init, part, options)


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
) -> None:
    """Stage 1 alone: write an operation's reference and profile."""
    _new("analyze", name, source, engine, root, _mode(yes, pause), shape, init, part, {"trust_url": trust_url})


@app.command()
def generate(
    name: Name, root: RootDir = None, yes: Yes = False, pause: Pause = False, overwrite: Overwrite = False
) -> None:
    """Stage 2 alone: write a kernel from its reference and profile.

    Reads profiles/NAME.yaml and kernels/reference/NAME.py."""
    from liger_dev import stages

    folder = _root(root)
    _start(folder, stages.generate_request(folder, name, review=_mode(yes, pause), overwrite=overwrite))


@app.command()
def validate(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every kernel of the workspace.")] = False,
    root: RootDir = None,
    no_benchmark: NoBenchmark = False,
    ncu: Ncu = False,
) -> None:
    """Stage 3 alone: test and measure kernels, write Results."""
    from liger_dev import stages

    folder = _root(root)
    chosen = _profile_names(folder) if every else list(names or ())
    if not chosen:
        raise BadInput("no kernel to validate", str(folder), "name one, or use --all; `liger-dev list` shows them")
    options = {"review": "yes", "benchmark": not no_benchmark, "ncu": ncu}
    failed = [name for name in chosen if not _drive(folder, stages.validate_request(name, **options))]
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
) -> None:
    """Go on with a run where it stopped, or review a stage again."""
    from liger_dev import runs
    from liger_dev.session import go_on

    folder = _root(root)
    opened = runs.open_run(folder, run)
    mode = _mode(yes, pause) if yes or pause else opened.request["review"]
    raise typer.Exit(0 if go_on(folder, opened, mode, again=stage) else KERNEL_FAILED)


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
        Screen().show(overview.run_views(folder, runs.open_run(folder, run), stage))


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
    from liger_dev import stages

    _start(_root(root), {**stages.measure_request("bench", name), "review": "yes"})


@app.command()
def plot(name: Name, root: RootDir = None) -> None:
    """Draw a kernel's plots from the measurements."""
    from liger_dev import stages

    _start(_root(root), {**stages.measure_request("plot", name), "review": "yes"})


@app.command()
def check(names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None, root: RootDir = None) -> None:
    """Find generated files that are stale or edited by hand."""
    from liger_dev.overview import check_lines

    lines = check_lines(_root(root), list(names or ()))
    print("\n".join(lines) if lines else "all generated files are as generated")
    raise typer.Exit(KERNEL_FAILED if lines else 0)


@app.command("list")
def list_operations(root: RootDir = None) -> None:
    """List the known operations; * marks what is generated."""
    from liger_dev.overview import operation_lines

    print("\n".join(operation_lines(_root_or_none(root))))


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
    from liger_dev import stages

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"the folder can't be made: {error.strerror}", str(directory), "name another one") from None
    _start(directory.resolve(), {**stages.init_request(), "review": "yes"})


def _new(
    command: str,
    name: str,
    source: str | None,
    engine: Engine,
    root: Path | None,
    mode: str,
    shape: list[str] | None,
    init: list[str] | None,
    part: int,
    options: dict[str, Any],
) -> None:
    from liger_dev import sources
    from liger_dev import stages

    if engine is Engine.claude:
        raise BadInput("the claude engine is not built yet in this version", "--engine", "use --engine builtin")
    folder = _root(root)
    shapes = dict(_pair(item) for item in shape or ())
    found = sources.resolve(name, source, shapes=shapes, init=list(init or ()), cwd=Path.cwd(), part=part)
    _start(folder, stages.new_request(command, name, found, review=mode, engine="builtin", **options))


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
