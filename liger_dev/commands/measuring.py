"""The commands about speed and memory: measure kernels, draw what was measured, make their reports again."""

from pathlib import Path
from typing import Annotated
from typing import Any
from typing import NoReturn

import typer

from liger_dev.commands.starting import passes
from liger_dev.commands.starting import root_of
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput
from liger_dev.errors import LimitReached
from liger_dev.options import Dtype
from liger_dev.options import Name
from liger_dev.options import Names
from liger_dev.options import RootDir
from liger_dev.screen import tell_error

With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="OPTION", help="An option of the benchmark script: --with=--noise; repeatable."),
]


def bench(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")], given: With = None, root: RootDir = None
) -> None:
    """Measure kernels' speed and memory; needs a GPU.

    A benchmark that was stopped goes on where it was when it is asked for again."""
    from liger_dev import requests

    options = [word for text in given or () for word in text.split()]
    _one_by_one(root_of(root), [requests.measure_request("bench", name, options=options) for name in names])


def tune(
    name: Name,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", min=1, help="What it may take; run again to go on.")
    ] = 600,
    arch: Annotated[
        list[str] | None,
        typer.Option("--arch", metavar="TARGET", help="Compile for sm_80, sm_90, … and time nothing; repeatable."),
    ] = None,
    x: Annotated[
        list[int] | None,
        typer.Option("--x", metavar="SIZE", min=1, help="A size in place of the benchmark's; repeatable."),
    ] = None,
    dtype: Annotated[
        list[Dtype] | None, typer.Option("--dtype", help="In place of the benchmark's; repeatable.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure also what was measured before.")] = False,
    kept: Annotated[
        bool, typer.Option("--kept", help="Measure nothing: write what was measured before; needs no GPU.")
    ] = False,
    root: RootDir = None,
) -> None:
    """Measure a kernel's launch settings, and keep those that beat the default; needs a GPU.

    What is better goes into the profile and, as a table, into the op file. What was measured is not measured again."""
    from liger_dev import requests
    from liger_dev import runs
    from liger_dev.session import go_on
    from liger_dev.stages.tuning import check_archs
    from liger_dev.stages.tuning import is_spent

    check_archs(arch or [])
    folder = root_of(root)
    options = {"budget": budget, "archs": arch or [], "x_values": x or [], "again": again, "kept": kept}
    request = requests.measure_request("tune", name, **options, dtypes=[one.value for one in dtype or ()])
    run = runs.create_run(folder, {**request, "review": "yes"})
    passed = go_on(folder, run, "yes")
    if is_spent(run):
        raise LimitReached(
            f"the budget of {budget:g} s is spent before all was measured; what was is kept",
            name,
            "the same command goes on where it stopped",
        )
    raise typer.Exit(0 if passed else KERNEL_FAILED)


def plot(names: Names = None, root: RootDir = None) -> None:
    """Draw plots from the measurements: of the named kernels, or of all with their common roofline."""
    from liger_dev import requests
    from liger_dev.measuring import measured_kernels

    folder = root_of(root)
    chosen = names or measured_kernels(folder)
    whole = [] if names else [requests.measure_request("roofline", "roofline")]
    _one_by_one(folder, [*(requests.measure_request("plot", name) for name in chosen), *whole])


def report(
    names: Names = None,
    table: Annotated[
        Path | None, typer.Option("--table", metavar="FILE.md", help="Write a row a kernel between a file's marks.")
    ] = None,
    full_table: Annotated[
        Path | None, typer.Option("--full-table", metavar="FILE.md", help="Write a file with every size and time.")
    ] = None,
    root: RootDir = None,
) -> None:
    """Make reports' HTML pages again, or write tables of all kernels' measurements into Markdown files."""
    from liger_dev import requests
    from liger_dev.measuring import write_full_table
    from liger_dev.measuring import write_table

    folder = root_of(root)
    for path, write in ((table, write_table), (full_table, write_full_table)):
        if path is not None:
            write(folder, path)
            tell_error(f"the table is in {path}")
    if not names and table is None and full_table is None:
        raise BadInput("no kernel to report on", "report", "name one, or write the table of all: --table README.md")
    _one_by_one(folder, [requests.measure_request("report", name) for name in names or ()])


def _one_by_one(root: Path, requests: list[dict[str, Any]]) -> NoReturn:
    """Each request to its end, whatever became of the one before; leaves with 1 if one failed."""
    failed = []
    for number, request in enumerate(requests, start=1):
        if len(requests) > 1:
            tell_error(f"{request['command']} {request['name']}: {number} of {len(requests)}")
        if not passes(root, {**request, "review": "yes"}):
            failed.append(request["name"])
    if failed and len(requests) > 1:
        tell_error(f"failed: {', '.join(failed)}")
    raise typer.Exit(KERNEL_FAILED if failed else 0)
