"""What the user asks for in, a run's request out: plain JSON, so that any machine can go on with the run.

Every request has `command` and `name`. Those that agents may have a part in also have `engine` (builtin, auto or
claude), `model` and `max_cost` (dollars for the whole run, None without a limit).
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.records import Source

Request = dict[str, Any]


def new_request(command: str, name: str, source: Source, **options: Any) -> Request:
    """What `new` and `analyze` ask for: a source that is read already, so that any machine can go on with the run.

    The option `trust_url` approves a text from a URL before anyone has seen it.
    """
    return {"command": command, "name": name, "source": asdict(source), "profile": "", **options}


def generate_request(root: Path, name: str, **options: Any) -> Request:
    """What `generate` asks for: the profile and the reference as they are on disk now. Raises BadInput without them."""
    profile, reference = workspace.read(root, profile_path(name)), workspace.read(root, reference_path(name))
    if profile is None or reference is None:
        missing = profile_path(name) if profile is None else reference_path(name)
        raise BadInput(f"there is no {missing} to generate from", str(root), f"make it first: liger-dev analyze {name}")
    source = Source("function", reference, name, reference_path(name))
    return {"command": "generate", "name": name, "source": asdict(source), "profile": profile, **options}


def modify_request(root: Path, name: str, wish: str, **options: Any) -> Request:
    """What `modify NAME "words"` asks for. Raises BadInput if there is no such kernel."""
    from liger_dev.scratch import check_files

    check_files(name, root)
    return {"command": "modify", "name": name, "wish": wish, **options}


def retrace_request(root: Path, name: str, source: Source, **options: Any) -> Request:
    """What `modify NAME --from SOURCE` asks for: the kernel made anew, names and benchmark settings as they are now."""
    keep = workspace.read(root, profile_path(name))
    if keep is None:
        raise BadInput(
            f"there is no kernel '{name}' to modify", str(root), f"make it: liger-dev new {name} --from SOURCE"
        )
    return new_request("retrace", name, source, keep=keep, **options)


def validate_request(name: str, **options: Any) -> Request:
    """What `validate` asks for: the kernel as it is in the workspace."""
    return {"command": "validate", "name": name, **options}


def init_request(overwrite: bool = False) -> Request:
    """What `init` asks for: the files that every workspace has; `overwrite` replaces older shared helpers."""
    return {"command": "init", "name": "init", "overwrite": overwrite}


def measure_request(command: str, name: str, **options: Any) -> Request:
    """What `bench`, `tune`, `plot` and `report` ask for."""
    return {"command": command, "name": name, **options}


def profile_path(name: str) -> str:
    return f"profiles/{name}.yaml"


def reference_path(name: str) -> str:
    return f"kernels/reference/{name}.py"
