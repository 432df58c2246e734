"""The commands about what is there: a workspace, its kernels, somebody else's kernels, and this machine."""

import sys

from pathlib import Path
from typing import Annotated

import typer

from liger_dev.commands.starting import root_of
from liger_dev.commands.starting import shapes_of
from liger_dev.commands.starting import start
from liger_dev.errors import BAD_INPUT
from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput
from liger_dev.options import Init
from liger_dev.options import Names
from liger_dev.options import RootDir
from liger_dev.options import Shape


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]")] = Path("."),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Bring shared helpers of an older version to this one's.")
    ] = False,
) -> None:
    """Make a workspace: the folders and files that kernels share."""
    from liger_dev import requests

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"the folder can't be made: {error.strerror}", str(directory), "name another one") from None
    start(directory.resolve(), {**requests.init_request(overwrite), "review": "yes"})


def check(names: Names = None, root: RootDir = None) -> None:
    """Find generated files and evidence that are stale or altered."""
    from liger_dev.overview import check_lines

    wrong, notes = check_lines(root_of(root), list(names or ()))
    print("\n".join([*(wrong or ["all generated files are as generated, and so is the evidence"]), *notes]))
    raise typer.Exit(KERNEL_FAILED if wrong else 0)


def list_operations(
    ops: Annotated[
        bool, typer.Option("--ops", help="List the ATen operations that the compiler knows instead.")
    ] = False,
    root: RootDir = None,
) -> None:
    """List the known operations; * marks what is generated."""
    from liger_dev.overview import operation_lines
    from liger_dev.overview import row_lines

    print("\n".join(row_lines() if ops else operation_lines(_root_or_none(root))))


def grade(
    op_file: Annotated[Path, typer.Argument(metavar="OP_FILE", help="A file with Triton kernels and what calls them.")],
    reference: Annotated[str, typer.Option("--reference", metavar="FILE[:NAME]", help="What it must agree with.")],
    function: Annotated[str, typer.Option("--function", metavar="NAME", help="What to call in OP_FILE.")] = "",
    seed: Annotated[
        str, typer.Option("--seed", metavar="N", help="A number, or `fresh`. [default: from the files]")
    ] = "",
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="SUBJECT", help="Accept a finding, or `all`.")
    ] = None,
    shape: Shape = None,
    init: Init = None,
) -> None:
    """Grade a kernel that was made elsewhere: is it right, and is it really the kernel?"""
    from liger_dev import grader_report
    from liger_dev.gate import gpu_name
    from liger_dev.grader import grade_file
    from liger_dev.grader import read_reference
    from liger_dev.screen import Screen
    from liger_dev.screen import tell

    if not op_file.is_file():
        raise BadInput("there is no such file", str(op_file), "name a Python file with @triton.jit kernels")
    screen = Screen()
    screen.say("reading the reference")
    found = read_reference(reference, shapes_of(shape), list(init or ()), Path.cwd())
    screen.say("grading")
    verdict = grade_file(op_file, found, function=function, seed=seed, device=gpu_name(), allow=list(allow or ()))
    screen.quiet()
    tell("\n".join(grader_report.lines(verdict)))
    raise typer.Exit(0 if verdict.passed else KERNEL_FAILED)


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


def _root_or_none(given: Path | None) -> Path | None:
    try:
        return root_of(given)
    except BadInput:
        if given is not None:
            raise
        return None
