"""A graded kernel in, its evidence bundle as JSON out; a workspace with bundles in, what in them no longer holds out."""

import hashlib
import json

from collections.abc import Iterable
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from liger_dev import __version__
from liger_dev.grading.verdict import Verdict
from liger_dev.grading.verdict import read_verdict

FOLDER = "benchmark/results"
# Those whose change may change a verdict.
_JUDGING = ("liger-dev", "torch", "triton")
_AGAIN = "`liger-dev validate {}` grades it again"


def bundle_path(name: str) -> str:
    return f"{FOLDER}/{name}.evidence.json"


def bundle(verdict: Verdict, facts: Mapping[str, Any]) -> str:
    """The bundle: the same for the same files, versions and device; `seal` is the digest of all the rest of it.

    Which test was the first to find a planted bug is left out: a bug that reads beyond a tensor finds other bytes there
    each time.

    Args:
        facts: `kernel`, `sha256` (path to digest, of what was graded), `measured` (likewise, raw samples), `versions`,
            `talks` (an agent's transcripts by file name, each a list of events), and what else is to be told.
    """
    told = verdict.to_json()
    for mutant in (told.get("strength") or {}).get("mutants", ()):
        if mutant["outcome"] == "killed":
            mutant["note"] = ""
    content = {**facts, "passed": verdict.passed, "verdict": told}
    return json.dumps({**content, "seal": _seal(content)}, indent=1, sort_keys=True) + "\n"


def _seal(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def talks_before(root: Path, name: str, op_digest: str) -> dict[str, Any]:
    """The transcripts in the bundle that is there, if it is of the same op: a later validation asks no agent."""
    try:
        old = json.loads((root / bundle_path(name)).read_text())
    except (OSError, ValueError):
        return {}
    same = isinstance(old, dict) and op_digest in old.get("sha256", {}).values()
    return dict(old.get("talks", {})) if same else {}


def digests(root: Path, paths: Iterable[str], changed: Mapping[str, bytes]) -> dict[str, str]:
    """The sha256 of files as they will be: those in `changed` as they are there, the others as they stand in `root`."""
    found = {path: changed[path] if path in changed else _bytes(root / path) for path in paths}
    return {path: hashlib.sha256(data).hexdigest() for path, data in found.items() if data is not None}


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def check(root: Path, name: str) -> tuple[list[str], list[str]]:
    """What is wrong with a kernel's bundle, and what is only worth knowing (other versions, new measurements).

    Nothing, where there is no bundle: the kernel was not validated yet.
    """
    path = bundle_path(name)
    data = _bytes(root / path)
    if data is None:
        return [], []
    try:
        found = json.loads(data)
        verdict = read_verdict(json.dumps(found["verdict"]))
        sealed, graded = found["seal"], found["sha256"]
        versions, passed = found["versions"], found["passed"]
    except (ValueError, KeyError, TypeError) as error:
        return [f"{path}: is no evidence, or that of an older version ({error}); {_AGAIN.format(name)}"], []
    if sealed != _seal(found) or passed != verdict.passed:
        return [f"{path}: was altered: its seal is that of another content; {_AGAIN.format(name)}"], []
    wrong = [f"{path}: is stale: {text}" for text in _changes(root, graded, "it was graded")]
    wrong += [] if passed else [f"{path}: says that the kernel failed: {verdict.faults[0] if verdict.faults else ''}"]
    notes = [f"{path}: {text}" for text in _changes(root, found.get("measured", {}), "its samples were bundled")]
    notes += [f"{path}: {text}; {_AGAIN.format(name)}" for text in _other_versions(versions)]
    return wrong, notes


def _changes(root: Path, recorded: Mapping[str, str], since: str) -> list[str]:
    now = digests(root, recorded, {})
    gone = [f"{path} is no longer there" for path in recorded if path not in now]
    return gone + [f"{path} has changed since {since}" for path in now if now[path] != recorded[path]]


def _other_versions(versions: Mapping[str, str]) -> list[str]:
    here = {package: _installed(package) for package in _JUDGING}
    other = [
        f"{package} {versions[package]} (here {is_now})"
        for package, is_now in here.items()
        if versions.get(package, is_now) != is_now
    ]
    return [f"was graded with {', '.join(other)}"] if other else []


def _installed(package: str) -> str:
    try:
        return __version__ if package == "liger-dev" else metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
