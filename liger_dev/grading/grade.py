"""`python -m liger_dev.grading.grade REQUEST VERDICT`: grades a candidate, and writes the verdict that it made itself.

This process is trusted. It imports neither the candidate nor the reference: both run in children of their own, under
limits, and hand over bytes. What is evidence here: the static reading of the candidate's text, the comparison of its
bytes with a truth that it never saw, how its process ended, and hashes of files before and after. What the candidate's
own process says of itself (launches, ATen operations, types, untouched inputs) is a hint that can convict; that it can't be
forged rests on the static reading, since a candidate that passes it can't name anything that would do so. Without
bubblewrap, files and the network are guarded by the static reading alone; the verdict lists the protection in force.
"""

import ctypes
import hashlib
import json
import signal
import sys

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from liger_dev.grading import judge
from liger_dev.grading import mutation
from liger_dev.grading.cases import FLOAT_DTYPES
from liger_dev.grading.cases import GradeCase
from liger_dev.grading.cases import grade_cases
from liger_dev.grading.children import Answers
from liger_dev.grading.children import Called
from liger_dev.grading.children import ReferenceFailed
from liger_dev.grading.children import ask_candidate
from liger_dev.grading.children import ask_reference
from liger_dev.grading.children import draw
from liger_dev.grading.children import find_function
from liger_dev.grading.request import ALLOW_ALL
from liger_dev.grading.request import Request
from liger_dev.grading.static_reading import OVERFLOWS
from liger_dev.grading.static_reading import Finding
from liger_dev.grading.static_reading import launched_kernels
from liger_dev.grading.static_reading import read_files
from liger_dev.grading.verdict import NOT_ALLOWED
from liger_dev.grading.verdict import TAMPERS
from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Verdict
from liger_dev.ranks import accepts_mixed_dtypes

# The grading ends when the tool is killed, and the children's supervisors end with it.
_PR_SET_PDEATHSIG = 1
_PACKAGE = Path(__file__).resolve().parent.parent
# What decides: a candidate that changed one of these would judge itself.
_OWN = (
    "allowed bounds candidate_child cases children compare draw grade interpreter judge mutants mutation "
    "mutation_server reference_child request static_reading trace truth verdict wire"
).split()


def grade(request: Request) -> Verdict:
    """The verdict on a candidate. Raises ReferenceFailed when the reference gives no truth to compare with."""
    before = hashes(request)
    refused, accepted = _read(request)
    told = tuple(Fault(NOT_ALLOWED, f"{f.file}:{f.line}", f"{f.subject}: {f.reason}") for f in refused)
    if request.static and any(finding.subject != OVERFLOWS for finding in refused):
        # What may not be named may not be run either.
        return Verdict(told, 0, seed=request.seed, hashes=tuple(before.items()), accepted=accepted)
    if not request.function and not find_function(Path(request.op).read_text(), request.reference.name):
        what = f"it has no function {request.reference.name} and no single autograd.Function or function: name one with --function"
        return Verdict((Fault("nothing to call", Path(request.op).name, what),), 0, seed=request.seed)
    called, left_out = draw(request, chosen_cases(request))
    answers = ask_candidate(request, called)
    verdict = _judged(request, called, answers)
    changed = [path for path, digest in hashes(request).items() if before.get(path) != digest]
    faults = tuple(Fault(TAMPERS, path, "its hash is another one than before") for path in changed)
    verdict = replace(
        verdict,
        faults=(*faults, *(told if request.static else ()), *verdict.faults),
        accepted=accepted,
        left_out=(*left_out, *verdict.left_out),
        hashes=tuple(before.items()),
    )
    return (
        replace(verdict, strength=mutation.strength(request, called)) if request.mutants and verdict.passed else verdict
    )


def _read(request: Request) -> tuple[list[Finding], tuple[str, ...]]:
    """Findings in the candidate's text, and what of them was accepted, each subject once."""
    findings = read_files(Path(request.op), Path(request.root) if request.root else None)
    refused = [f for f in findings if not {f.subject, ALLOW_ALL} & set(request.allow)]
    return refused, tuple(dict.fromkeys((*request.allow, *(f.subject for f in findings if f not in refused))))


def chosen_cases(request: Request) -> tuple[GradeCase, ...]:
    reference = request.reference
    mixed = accepts_mixed_dtypes(reference)
    cases = grade_cases(reference.tensors, reference.scalars, request.seed, dict(request.divisors), mixed)
    base = next(case for case in cases if case.id == "base")
    modes = [*(judge.GPU_MODES if _gpus(request) else ()), *(judge.SECOND_GPU if _gpus(request) > 1 else ())]
    cases += tuple(replace(base, id=mode, mode=mode, dtype=FLOAT_DTYPES[1], steps=()) for mode in modes)
    if request.cases:
        cases = tuple(case for case in cases if case.id.startswith(request.cases) or case.id == "base")
    return cases


def _gpus(request: Request) -> int:
    return torch.cuda.device_count() if request.device == "cuda" else 0


def _judged(request: Request, called: Sequence[Called], answers: Answers) -> Verdict:
    faults = judge.judge_child(answers, called)
    faults += [Fault("fails torch.library.opcheck", name, text) for name, text in answers.operators.items() if text]
    finished = [one for one in called if one.file in answers.found]
    expected = ask_reference(request, finished) if finished else []
    kernels = frozenset(_kernels(request))
    margins, refused = [], []
    for one, truth in zip(finished, expected):
        found, measured, refusal = judge.judge_case(
            one, answers.found[one.file], truth, kernels, frozenset(request.allow)
        )
        faults += found
        margins += measured
        refused += [refusal] if refusal else []
    records = [answers.found[one.file][0] for one in finished]
    cases = [one.case for one in called]
    launches = [{(phase, name) for phase, name, _ in record["launches"]} for record in records]
    counts = [
        (*launch, sum(launch in found for found in launches))
        for launch in sorted(set().union(*launches))
        if launch[0] in ("forward", "backward")
    ]
    return Verdict(
        judge.group(faults, cases),
        len(finished),
        margins=judge.worst(margins),
        contracts=judge.contracts(_finished_first(cases, finished), faults, records, _gpus(request), answers.operators),
        launches=tuple(counts),
        left_out=tuple(f"refused clearly: {text}" for text in refused),
        seed=request.seed,
        device=answers.device,
        protection=answers.done.protection,
    )


def _finished_first(cases: Sequence[GradeCase], finished: Sequence[Called]) -> list[GradeCase]:
    done = [one.case for one in finished]
    return [*done, *(case for case in cases if case not in done)]


def _kernels(request: Request) -> list[str]:
    """The @triton.jit functions of the candidate's file and of the files beside it."""
    files = [Path(request.op)]
    if request.root:
        files += sorted((Path(request.root) / "kernels" / "ops").glob("*.py"))
    return [name for file in files for name in launched_kernels(file.read_text())]


def hashes(request: Request) -> dict[str, str]:
    """The sha256 of what must not change: the candidate, its tests and tolerances, and the grader itself."""
    paths = [Path(request.op), *map(Path, request.hashed)]
    found = {_shown(path, request): _digest(path) for path in paths}
    own = hashlib.sha256()
    for path in (_PACKAGE / "grading" / f"{name}.py" for name in _OWN):
        own.update(path.read_bytes())
    return {**found, "liger_dev/grading": own.hexdigest()}


def _shown(path: Path, request: Request) -> str:
    return (
        path.relative_to(request.root).as_posix() if request.root and path.is_relative_to(request.root) else path.name
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"


def main(request_path: Path, verdict_path: Path) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    torch.set_num_threads(1)
    request = Request.from_json(json.loads(request_path.read_text()))
    try:
        answer = grade(request).to_json()
    except ReferenceFailed as error:
        answer = {"error": str(error)}
    verdict_path.write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
