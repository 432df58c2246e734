"""A request and its cases in, what the candidate's and the reference's children wrote out.

The expected values do not exist while the candidate lives: the reference is asked for them once the candidate's child,
and all that it started, has ended. Neither child is told the seed.
"""

import ast
import json
import shutil
import sys

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

import torch

from liger_dev.grading import wire
from liger_dev.grading.cases import GradeCase
from liger_dev.grading.draw import draw_inputs
from liger_dev.grading.draw import draw_upstream
from liger_dev.grading.request import Request
from liger_dev.grading.static_reading import is_kernel
from liger_dev.sandbox import Completed
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child

_TOOL = Path(__file__).resolve().parent.parent.parent
_NOT_WATCHED = ("compiled", "captured", "autocast", "second GPU")


class ReferenceFailed(Exception):
    """The reference can't be run: the message says why."""


@dataclass(frozen=True)
class Called:
    """A case with the tensors that both children get, by name; upstream gradients as `upstream 0`, `upstream 1`."""

    case: GradeCase
    file: str
    given: dict[str, torch.Tensor | None]
    wanted: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        case = self.case
        watched = case.mode not in _NOT_WATCHED and case.alias is None and case.declared
        return {
            "file": self.file,
            "scalars": dict(case.scalars),
            "wanted": list(self.wanted),
            "alias": case.alias,
            "steps": list(case.steps),
            "mode": case.mode,
            "reuses": case.reuses,
            "watched": watched,
        }


def draw(request: Request, cases: Sequence[GradeCase]) -> tuple[tuple[Called, ...], tuple[str, ...]]:
    """The cases with inputs and upstream gradients, and what was left out since the reference refuses it."""
    called = []
    for index, case in enumerate(cases):
        # Each case has random numbers of its own, so that leaving one out changes no other.
        generator = torch.Generator().manual_seed(request.seed + 2 * index)
        inputs = draw_inputs(request.reference.tensors, case, generator)
        called.append(Called(case, f"{index:03}", inputs, _wanted(request, case)))
    answers = _ask_reference(request, "shapes", called)
    kept, left_out = [], []
    for index, (one, (record, _)) in enumerate(zip(called, answers)):
        if record["refused"]:
            left_out.append(f"{one.case.id}: the reference refuses it ({record['refused']})")
            continue
        generator = torch.Generator().manual_seed(request.seed + 2 * index + 1)
        upstream = draw_upstream(record["outputs"], one.case, generator)
        given = {**one.given, **{f"upstream {i}": dy for i, dy in upstream.items()}}
        kept.append(Called(one.case, one.file, given, one.wanted))
    return tuple(kept), tuple(left_out)


def _wanted(request: Request, case: GradeCase) -> tuple[str, ...]:
    if case.mode in ("no_grad", "inference_mode"):
        return ()
    floats = [tensor.name for tensor in request.reference.tensors if tensor.dtype == "float"]
    hidden = (*case.frozen, *case.absent, case.alias[0] if case.alias else "")
    return tuple(name for name in floats if name not in hidden)


def ask_reference(
    request: Request, called: Sequence[Called]
) -> list[tuple[dict[str, Any], dict[str, torch.Tensor | None]]]:
    """Eager and true tensors of each case."""
    return _ask_reference(request, "values", called)


def _ask_reference(
    request: Request, what: str, called: Sequence[Called]
) -> list[tuple[dict[str, Any], dict[str, torch.Tensor | None]]]:
    folder = Path(request.scratch) / f"reference-{what}"
    out = folder / "out"
    out.mkdir(parents=True)
    file = folder / "reference.py"
    file.write_text(request.reference.text)
    job = {"do": what, "file": str(file), "entry": request.reference.name, "seed": request.seed}
    done = _run("reference_child", folder, _write_job(folder, job, called, request.device), out, request)
    try:
        if done.returncode or done.timed_out:
            raise wire.BadWire(_last_line(done))
        return [wire.read(out, one.file) for one in called]
    except wire.BadWire as error:
        raise ReferenceFailed(f"the reference can't be run: {error}") from None
    finally:
        # Nothing of it is left for the candidate.
        shutil.rmtree(folder)


def _last_line(done: Completed) -> str:
    if done.timed_out:
        return "it did not end within the time limit"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {done.returncode}"


@dataclass(frozen=True)
class Answers:
    """What the candidate's child left: a record and tensors for each case that it finished, and how it ended.

    `operators` are those that the candidate registers, each with what `torch.library.opcheck` finds of it.
    """

    found: dict[str, tuple[dict[str, Any], dict[str, torch.Tensor | None]]]
    done: Completed
    function: str
    device: str
    bad: str = ""
    gone: bool = False
    operators: Mapping[str, str] = field(default_factory=dict)


def ask_candidate(request: Request, called: Sequence[Called]) -> Answers:
    """Runs the candidate on all cases. Its folder holds its own file and package, inputs, and nothing else."""
    folder = Path(request.scratch) / "candidate"
    out = folder / "out"
    out.mkdir(parents=True)
    root, file = _own_copy(request, folder)
    function = request.function or find_function(file.read_text(), request.reference.name)
    job = {"root": str(root), "file": str(file), "function": function, "names": argument_names(request)}
    done = _run("candidate_child", folder, _write_job(folder, job, called, request.device), out, request)
    found: dict[str, tuple[dict[str, Any], dict[str, torch.Tensor | None]]] = {}
    bad = ""
    told: dict[str, Any] = {"device": "", "operators": {}}
    for one in called:
        if (out / f"{one.file}.json").exists():
            try:
                found[one.file] = wire.read(out, one.file)
            except wire.BadWire as error:
                bad = bad or str(error)
    if (out / "end.json").is_file() and not done.returncode:
        told = json.loads((out / "end.json").read_text())
    return Answers(found, done, function, told["device"], bad, gone=not out.is_dir(), operators=told["operators"])


def _own_copy(request: Request, folder: Path) -> tuple[Path, Path]:
    """The candidate's file, and the package that it belongs to without the references."""
    root, op = folder / "root", Path(request.op)
    if request.root and op.is_relative_to(request.root):
        leave = shutil.ignore_patterns("__pycache__", "reference")
        shutil.copytree(Path(request.root) / "kernels", root / "kernels", ignore=leave)
        return root, root / op.relative_to(request.root)
    root.mkdir()
    shutil.copyfile(op, root / op.name)
    return root, root / op.name


def argument_names(request: Request) -> tuple[list[str], list[str]]:
    """Tensors and scalars in the reference's order."""
    reference = request.reference
    return [tensor.name for tensor in reference.tensors], [scalar.name for scalar in reference.scalars]


def find_function(text: str, name: str) -> str:
    """What to call in a file: the function named like the reference or `liger_` it, else the only autograd.Function,
    else the only public function that is no kernel; empty if none of these can be told."""
    body = ast.parse(text).body
    classes = [
        n.name for n in body if isinstance(n, ast.ClassDef) and any("Function" in ast.unparse(b) for b in n.bases)
    ]
    functions = [n.name for n in body if isinstance(n, ast.FunctionDef) and not is_kernel(n)]
    for wanted in (f"liger_{name}", name):
        if wanted in functions:
            return wanted
    public = [function for function in functions if not function.startswith("_")]
    for found in (classes, public):
        if found:
            return found[0] if len(found) == 1 else ""
    return ""


def _write_job(folder: Path, job: dict[str, Any], called: Sequence[Called], device: str) -> Path:
    for one in called:
        wire.write(folder, one.file, {}, one.given, whole=True)
    path = folder / "job.json"
    path.write_text(json.dumps({**job, "device": device, "cases": [one.to_json() for one in called]}))
    return path


def _run(module: str, folder: Path, job: Path, out: Path, request: Request) -> Completed:
    argv = [sys.executable, "-m", f"liger_dev.grading.{module}", str(job), str(out)]
    env = {"PYTHONPATH": str(_TOOL), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    env |= (
        {"TRITON_INTERPRET": "0"} if request.device == "cuda" else {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    )
    work = folder / "work"
    work.mkdir()
    return run_child(argv, scratch=work, writable=[out], limits=Limits(seconds=request.seconds), env=env)
