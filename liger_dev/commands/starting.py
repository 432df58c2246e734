"""What was typed in, a workspace found and a run driven out: what the commands of all families begin and end with."""

from pathlib import Path
from typing import Any
from typing import NoReturn

import typer

from liger_dev.errors import KERNEL_FAILED
from liger_dev.errors import BadInput


def root_of(given: Path | None) -> Path:
    """The workspace: the folder that was named, else the one that is found upwards. Raises BadInput."""
    from liger_dev import workspace

    if given is None:
        return workspace.find_root(Path.cwd())
    if not given.is_dir():
        raise BadInput("there is no such folder", str(given), f"make it a workspace: liger-dev init {given}")
    return given.resolve()


def start(root: Path, request: dict[str, Any]) -> NoReturn:
    """Runs a request to its end and leaves with its exit code."""
    raise typer.Exit(0 if passes(root, request) else KERNEL_FAILED)


def passes(root: Path, request: dict[str, Any]) -> bool:
    """Runs a request to its end; whether its kernel passed."""
    from liger_dev import runs
    from liger_dev.session import go_on

    return go_on(root, runs.create_run(root, request), request["review"])


def shapes_of(items: list[str] | None) -> dict[str, str]:
    """The axes by tensor of `--shape x=B,T,H`. Raises BadInput."""
    pairs = [(item, *item.partition("=")) for item in items or ()]
    for item, _, equals, _ in pairs:
        if not equals:
            raise BadInput(f"'{item}' is no shape", "--shape", "name the tensor and its axes: --shape x=B,T,H")
    return {tensor.strip(): axes for _, tensor, _, axes in pairs}
