"""The command line: what is typed in, one function called, its answer printed, its exit code given."""

import sys
import traceback

from collections.abc import Callable
from typing import Annotated
from typing import NoReturn

import typer

from liger_dev import __version__
from liger_dev.commands import going_on
from liger_dev.commands import looking
from liger_dev.commands import making
from liger_dev.commands import measuring
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import LigerDevError
from liger_dev.options import spread
from liger_dev.screen import tell_error

_EXIT_CODES = """Exit codes: 0 passed; 1 the kernel failed validation, or `check` found something; 2 bad input,
an unusable environment or a bug of liger-dev; 3 paused at a review; 4 budget or limit reached; 130 interrupted."""

# In the order of `--help`.
COMMANDS: dict[str, Callable[..., None]] = {
    "new": making.new,
    "analyze": making.analyze,
    "generate": making.generate,
    "modify": making.modify,
    "validate": making.validate,
    "resume": going_on.resume,
    "runs": going_on.list_runs,
    "show": going_on.show,
    "approve": going_on.approve,
    "reject": going_on.reject,
    "bench": measuring.bench,
    "tune": measuring.tune,
    "plot": measuring.plot,
    "report": measuring.report,
    "check": looking.check,
    "list": looking.list_operations,
    "grade": looking.grade,
    "coverage": looking.coverage,
    "doctor": looking.doctor,
    "init": looking.init,
}

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
for _name, _command in COMMANDS.items():
    app.command(_name)(spread(_command))


def main() -> NoReturn:
    """The program. Every failure becomes a message and an exit code here, and a traceback only with --debug."""
    debug = "--debug" in sys.argv[1:]
    try:
        app(args=[word for word in sys.argv[1:] if word != "--debug"], prog_name="liger-dev")
    except LigerDevError as error:
        if debug:
            traceback.print_exc()
        tell_error(f"liger-dev: {error}")
        sys.exit(error.exit_code)
    except Exception as bug:  # the program's last line: Python's own exit code 1 would mean "the kernel failed"
        if debug:
            traceback.print_exc()
        line = str(bug).partition("\n")[0]
        tell_error(
            f"liger-dev: this is a bug of liger-dev: {type(bug).__name__}: {line}\n"
            "  do:    run again with --debug and report what it prints"
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
