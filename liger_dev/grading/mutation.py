"""A request in, how many planted bugs its test file finds out: the tests are tested.

Bugs are sampled by the request's seed, one of each kind before a second of any. What survives is compared with the
original on the grader's own cases, byte by byte: a change that none of them shows is no bug, and is left out with that
reason. Nor are fewer digits, or more, where the grader allows twice the error: eager's arithmetic may be no better.
Bugs are planted in the text and run in Triton's interpreter, whatever device there is.
"""

import json
import os
import random
import shutil
import sys

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from liger_dev.grading import wire
from liger_dev.grading.children import Called
from liger_dev.grading.children import argument_names
from liger_dev.grading.children import ask_candidate
from liger_dev.grading.children import ask_reference
from liger_dev.grading.children import find_function
from liger_dev.grading.judge import compared
from liger_dev.grading.mutants import Mutation
from liger_dev.grading.mutants import mutations
from liger_dev.grading.request import Request
from liger_dev.grading.verdict import Mutant
from liger_dev.grading.verdict import Strength
from liger_dev.records import digest
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child

_TOOL = Path(__file__).resolve().parent.parent.parent
_WORKERS = 2
_PROBED_STEPS = 40
# Bugs of precision alone, and how far within the grader's bounds they are none.
_OF_PRECISION = ("arithmetic in the inputs' dtype", "reduction in bfloat16", "rounding step left out")
_CLEAR_MARGIN = 2.0
# As many more are at hand, to take the place of those that turn out to be no bugs.
_SPARE = 2


def strength(request: Request, called: Sequence[Called]) -> Strength:
    """What the request's test file found of `request.mutants` bugs, and of the null candidates beside them."""
    text = Path(request.op).read_text()
    function = request.function or find_function(text, request.reference.name)
    every = mutations(text, function)
    excluded = [mutation for mutation in every if mutation.excluded]
    nulls, others = _sample([mutation for mutation in every if not mutation.excluded], request.seed)
    chosen = [*nulls, *others[: _SPARE * request.mutants]]
    outcomes, fault = _run(request, called, function, text, chosen, len(nulls) + request.mutants)
    fault = fault or _too_few(len(outcomes), len(chosen), len(nulls) + request.mutants)
    ran = [_judged_by_bounds(request, called, *pair) for pair in outcomes]
    ran += [_mutant(mutation, "excluded", mutation.excluded) for mutation in excluded]
    return Strength(tuple(sorted(ran, key=lambda m: (m.line, m.operator, m.change))), len(every), fault)


def _sample(every: Sequence[Mutation], seed: int) -> tuple[list[Mutation], list[Mutation]]:
    """Every null candidate; the others, one of each operator before a second of any."""
    draw = random.Random(seed)
    nulls = [mutation for mutation in every if mutation.operator.startswith(("returns", "gradient as if"))]
    kinds: dict[str, list[Mutation]] = {}
    for mutation in every:
        if mutation not in nulls:
            kinds.setdefault(mutation.operator, []).append(mutation)
    for members in kinds.values():
        draw.shuffle(members)
    deepest = max(map(len, kinds.values()), default=0)
    return nulls, [members[turn] for turn in range(deepest) for members in kinds.values() if turn < len(members)]


def _mutant(mutation: Mutation, outcome: str, note: str) -> Mutant:
    return Mutant(mutation.operator, mutation.line, mutation.change, outcome, note)


def _run(
    request: Request, called: Sequence[Called], function: str, original: str, chosen: Sequence[Mutation], enough: int
) -> tuple[list[tuple[Mutation, Mutant]], str]:
    """The outcomes of the chosen bugs in their order, until `enough` are bugs indeed; and why there are none if even the
    original does not pass."""
    folder = Path(request.scratch) / "mutants"
    work = folder / "work"
    work.mkdir(parents=True)
    trees = [folder / f"tree-{number}" for number in range(min(_WORKERS, os.cpu_count() or 1))]
    for tree in trees:
        shutil.copytree(request.tree, tree, ignore=shutil.ignore_patterns("__pycache__"))
    op = Path(request.op).relative_to(request.root).as_posix()
    job = {"trees": [str(tree) for tree in trees], "op": op, "test": request.test, "seconds": 5 * request.seconds}
    texts = [[str(i), mutation.text, mutation.kernel] for i, mutation in enumerate(chosen)]
    job |= {"original": original, "texts": texts, "enough": enough}
    path, out = folder / "job.json", folder / "out"
    out.mkdir()
    path.write_text(json.dumps({**job, "probe": _probe(request, called, function, folder)}))
    argv = [sys.executable, "-m", "liger_dev.grading.mutation_server", str(path), str(out)]
    env = {"PYTHONPATH": str(_TOOL), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    env |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = run_child(argv, scratch=work, writable=[folder], limits=Limits(seconds=6 * request.seconds), env=env)
    rows = [json.loads(line) for file in sorted(out.iterdir()) for line in file.read_text().splitlines()]
    if done.returncode or not rows or rows[0]["code"]:
        failed = f"{rows[0]['failed'] or 'the run'} fails" if rows else done.stderr.strip()[-300:]
        return [], f"the test file does not pass on the op itself in a fork: {failed}"
    ended = [(chosen[int(row["name"])], row) for row in rows[1:]]
    return [(mutation, _outcome(mutation, row)) for mutation, row in ended], ""


def _too_few(tried: int, chosen: int, enough: int) -> str:
    """Why the tests can't be called strong, where the time was over before half of the bugs had been tried."""
    if tried == chosen or 2 * tried >= enough:
        return ""
    return f"the time was over when {tried} of {enough} planted bugs had been tried: the tests take too long here"


def _outcome(mutation: Mutation, row: dict[str, Any]) -> Mutant:
    if not row["imported"]:
        return _mutant(mutation, "excluded", "it can't even be imported")
    if row["code"]:
        return _mutant(mutation, "killed", row["failed"] or "the process ended")
    if row["same"]:
        return _mutant(
            mutation,
            "excluded",
            f"equivalent: the same bytes as the original in all {row['same']} cases of the grader"
            + (" that launch it" if mutation.kernel else ""),
        )
    return _mutant(mutation, "survived", "")


def _judged_by_bounds(request: Request, called: Sequence[Called], mutation: Mutation, ran: Mutant) -> Mutant:
    """A survivor with fewer digits, or more, as the grader's own cases judge it; every other mutant as it ran."""
    if ran.outcome != "survived" or mutation.operator not in _OF_PRECISION:
        return ran
    folder = Path(request.scratch) / "mutants" / f"digits-{digest(mutation.text)[:12]}"
    tree = folder / "tree"
    op = tree / Path(request.op).relative_to(request.root)
    shutil.copytree(request.tree, tree, ignore=shutil.ignore_patterns("__pycache__"))
    op.write_text(mutation.text)
    mutated = replace(request, op=str(op), root=str(tree), scratch=str(folder), device="cpu")
    plain = _plain(called)
    answers = ask_candidate(mutated, plain)
    margins = []
    for one, truth in zip(plain, ask_reference(mutated, plain)):
        answer = answers.found.get(one.file)
        if answer is not None and answer[0]["error"] and not one.case.declared:
            continue  # a refusal, as the original's
        if answer is None or answer[0]["error"]:
            return ran
        faults, found = compared(one.case, answer, truth)
        if faults:
            return ran
        margins += found
    if min((found.margin for found in margins), default=0.0) < _CLEAR_MARGIN:
        return ran
    return _mutant(mutation, "excluded", f"at most half the error that the grader allows, in all {len(plain)} cases")


def _plain(called: Sequence[Called]) -> list[Called]:
    """The cases that need nothing beside them, without their further steps."""
    plain = [one for one in called if one.case.mode in ("grad", "no_grad") and not one.case.reuses][:_PROBED_STEPS]
    return [replace(one, case=replace(one.case, steps=())) for one in plain]


def _probe(request: Request, called: Sequence[Called], function: str, folder: Path) -> dict[str, Any]:
    """The grader's cases in the form that the candidate's child takes."""
    plain = _plain(called)
    for one in plain:
        wire.write(folder, one.file, {}, one.given, whole=True)
    cases = [one.to_json() for one in plain]
    return {"folder": str(folder), "function": function, "names": argument_names(request), "cases": cases}
