"""What the children wrote in, faults, margins and contracts out. Faults of one kind become one, with where it happens."""

import hashlib
import re
import signal

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from liger_dev.grading.cases import GradeCase
from liger_dev.grading.children import Answers
from liger_dev.grading.children import Called
from liger_dev.grading.compare import Given
from liger_dev.grading.compare import compare
from liger_dev.grading.verdict import Contract
from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Margin
from liger_dev.grading.wire import pack

_REFUSALS = frozenset(("ValueError", "TypeError", "NotImplementedError"))
_PHASES = {
    "forward": "launches no kernel in forward",
    "backward": "launches no kernel in backward",
    "repeat": "answers a second call without a launch",
    "repeated backward": "answers a second call without a launch",
}
GPU_MODES = {
    "compiled": "torch.compile, whole graph",
    "autocast": "autocast",
    "side stream": "a stream of its own",
    "captured": "captured in a CUDA graph",
}
SECOND_GPU = {"second GPU": "tensors on a second GPU"}
_OPCHECK = "torch.library.opcheck"


def judge_child(answers: Answers, called: Sequence[Called]) -> list[Fault]:
    """How the candidate's child ended, where that is no way to end."""
    done, count = answers.done, f"after {len(answers.found)} of {len(called)} cases"
    if done.timed_out:
        return [Fault("hangs", count, f"it did not end within {round(done.seconds)} s")]
    if answers.gone:
        return [Fault("removes its results", count, "the folder that they go to is no longer there")]
    if answers.bad:
        return [Fault("writes what is no result", count, answers.bad)]
    if done.returncode < 0:
        name = (
            signal.Signals(-done.returncode).name if -done.returncode in set(signal.Signals) else str(done.returncode)
        )
        return [Fault("crashes", count, f"the process was killed by {name}")]
    if len(answers.found) < len(called) or not answers.device:
        lines = done.stderr.strip().splitlines()
        if done.returncode == 1 and lines and lines[-1][:1].isalpha():
            return [Fault("can't be imported or called" if not answers.found else "crashes", count, lines[-1][:400])]
        return [Fault("ends the process", count, f"exit code {done.returncode}, results missing: that is no pass")]
    if done.returncode:
        return [Fault("ends the process", count, f"exit code {done.returncode}")]
    return []


def judge_case(
    one: Called, answer: Any, expected: Any, kernels: frozenset[str], allow: frozenset[str]
) -> tuple[list[Fault], list[Margin], str]:
    """Faults and margins of one case, and the text of a refusal that is in order."""
    record, actual = answer
    case = one.case
    faults = list(_written(one, record))
    if record["error"]:
        if not case.declared and record["phase"] == "forward" and _REFUSALS & set(record["kind"]):
            return faults, [], f"{case.id}: {record['error']}"
        return [*faults, _raised(case, record)], [], ""
    found, margins = compared(case, answer, expected)
    faults += found
    if case.declared:
        faults += _launches(one, record, actual, kernels)
        faults += _aten(case, record, allow)
    if record.get("second derivative") in ("silent", "given") and "second derivative" not in allow:
        text = {
            "silent": "autograd takes the gradient for a constant: refuse with once_differentiable",
            "given": "it is given, and nothing checks it",
        }
        faults.append(Fault("second derivative not refused", case.id, text[record["second derivative"]]))
    return faults, margins, ""


def compared(case: GradeCase, answer: Any, expected: Any) -> tuple[list[Fault], list[Margin]]:
    """Faults and margins of what a case that ended well gave."""
    (record, actual), (reference, tensors) = answer, expected
    gradients = case.values not in ("nan", "inf", "-inf")
    return compare(Given(case.id, {"gradients": gradients}, record, actual, tensors, reference["noise"]))


def _raised(case: GradeCase, record: dict[str, Any]) -> Fault:
    text = f"in {record['phase']}: {record['error']}"
    if "OutOfBounds" in record["error"]:
        found = re.search(r"OutOfBounds\(['\"](.*)['\"]\)", record["error"])
        return Fault(
            "reaches outside of its tensors", case.id, f"in {record['phase']}: {found[1] if found else record['error']}"
        )
    return Fault("fails", case.id, text)


def _written(one: Called, record: dict[str, Any]) -> Iterable[Fault]:
    before = pack({name: x for name, x in one.given.items() if x is not None}, whole=True)[1]
    if record["after"] != hashlib.sha256(before).hexdigest():
        yield Fault("writes to its inputs", one.case.id, "an input or an upstream gradient has other bytes afterwards")


def _launches(one: Called, record: dict[str, Any], actual: Any, kernels: frozenset[str]) -> Iterable[Fault]:
    """In each phase that computes something, a kernel of the file must have been launched."""
    case = one.case
    outputs = [x for name, x in actual.items() if name.startswith("output ")]
    if case.mode in ("compiled", "captured") or not any(x is not None and x.numel() for x in outputs):
        return
    phases = ["forward"]
    gradients = [x for name, x in actual.items() if name.startswith("gradient of ")]
    passed_on = [x for name, x in one.given.items() if name.startswith("upstream") and x is not None]
    computed = [
        dx
        for dx in gradients
        if dx is not None and not any(dx.shape == dy.shape and bool((dx == dy).all()) for dy in passed_on)
    ]
    phases += ["backward"] if any(dx.numel() for dx in computed) else []
    phases += ["repeat"] if "repeat" in case.steps else []
    phases += ["repeated backward"] if "repeat" in case.steps and "backward" in phases else []
    for phase in phases:
        # On a GPU a grid may be a function of the launch's arguments: then its size is not known.
        if not any(where == phase and name in kernels for where, name, _ in record["launches"]):
            yield Fault(_PHASES[phase], case.id, f"none of {', '.join(sorted(kernels)) or 'its @triton.jit functions'}")


def _aten(case: GradeCase, record: dict[str, Any], allow: frozenset[str]) -> Iterable[Fault]:
    for phase, name in record["aten"]:
        if name not in allow and phase not in ("accumulation", "second derivative"):
            yield Fault("computes with PyTorch instead of a kernel", case.id, f"{name} in {phase}")


def group(faults: Sequence[Fault], cases: Sequence[GradeCase]) -> tuple[Fault, ...]:
    """One fault a kind: how many cases, the first one's figures, and what those cases have in common."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    grouped = []
    for kind, members in kinds.items():
        ids = {member.where for member in members}
        failing = [case for case in cases if case.id in ids]
        if not failing:
            grouped.append(members[0])
            continue
        others = list(dict.fromkeys(member.what for member in members))[1:3]
        common = _common(failing, [case for case in cases if case.id not in ids])
        what = "; ".join(
            [members[0].what, *(f"also {text}" for text in others[:1]), *([f"only {common}"] if common else [])]
        )
        more = f" and {len(ids) - 1} other of {len(cases)} cases" if len(ids) > 1 else ""
        grouped.append(Fault(kind, f"{members[0].where}{more}", what))
    return tuple(grouped)


def _common(failing: Sequence[GradeCase], passing: Sequence[GradeCase]) -> str:
    """A property that all failing cases have and no passing one has."""
    if len(failing) < 2 or not passing:
        return ""
    for text, holds in _PROPERTIES.items():
        if all(map(holds, failing)) and not any(map(holds, passing)):
            return text
    for name in ("dtype", "layout", "values", "upstream", "mode"):
        values = {getattr(case, name) for case in failing}
        if len(values) == 1 and all(getattr(case, name) not in values for case in passing):
            return f"where {name} is {values.pop() or 'usual'}"
    return ""


def _columns(case: GradeCase) -> int:
    return next(reversed(case.sizes.values()), 1)


_PROPERTIES: dict[str, Callable[[GradeCase], bool]] = {
    "where inputs are not contiguous": lambda case: case.layout in ("transposed", "sliced", "expanded"),
    "where upstream gradients are not contiguous": lambda case: case.upstream in ("transposed", "sliced", "constant"),
    "where the number of columns is no power of two": lambda case: bool(_columns(case) & (_columns(case) - 1)),
    "where there are not two batch axes": lambda case: case.batch is not None and len(case.batch) != 2,
    "in 16 bits": lambda case: case.dtype != "float32",
    "where rows are longer than 1024": lambda case: _columns(case) > 1024,
}


# The promise, the fault that breaks it, and the step of a case that shows it; every case shows the one without.
_PROMISES = (
    ("same answer in a second call", "another answer in a second call", "repeat"),
    ("second backward through one forward", "another answer in a second backward", "repeat"),
    ("gradients accumulate", "gradients do not accumulate", "accumulate"),
    ("inputs are left as they are", "writes to its inputs", ""),
    ("second derivative refused", "second derivative not refused", "second derivative"),
)


def contracts(
    cases: Sequence[GradeCase],
    faults: Sequence[Fault],
    records: Sequence[dict[str, Any]],
    gpus: int,
    operators: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Contract, ...]:
    """What was promised beyond values, and whether it held. `records` are those of the cases that ended, in their
    order: a promise that none of them has put to the test is not run."""
    modes = {"no_grad": "under no_grad", "inference_mode": "under inference_mode", **GPU_MODES, **SECOND_GPU}
    broken = {fault.kind for fault in faults}
    crashed = {fault.where for fault in faults if fault.kind == "fails"}
    refused = next((r["second derivative"] for r in records if "second derivative" in r), "")
    ended = cases[: len(records)]
    rows = []
    for name, kind, step in _PROMISES:
        shown = any(step in case.steps for case in ended) if step else bool(ended)
        fails = kind in broken or (shown and crashed and "second" in name)
        outcome = "broken" if fails else "held" if shown else "not run"
        rows.append(Contract(name, outcome, refused if "derivative" in name else ""))
    for case in cases:
        if case.mode in modes or case.alias or case.reuses:
            outcome = "broken" if any(fault.where == case.id for fault in faults) else "held"
            rows.append(Contract(modes.get(case.mode, case.id), outcome if case in ended else "not run"))
    rows += [_opchecked(operators)]
    rows += [Contract(name, "not run", "there is no CUDA device") for name in GPU_MODES.values() if not gpus]
    rows += [Contract(name, "not run", "there is no second CUDA device") for name in SECOND_GPU.values() if gpus < 2]
    return tuple(rows)


def _opchecked(operators: Mapping[str, str]) -> Contract:
    if not operators:
        return Contract(_OPCHECK, "not run", "no operator is registered")
    said = "; ".join(f"{name}: {text}" for name, text in operators.items() if text)
    return Contract(_OPCHECK, "broken" if said else "held", said)


def worst(margins: Iterable[Margin]) -> tuple[Margin, ...]:
    """The smallest margin of each tensor and dtype."""
    found: dict[tuple[str, str], Margin] = {}
    for margin in margins:
        key = (margin.tensor, margin.dtype)
        if key not in found or margin.margin < found[key].margin:
            found[key] = margin
    return tuple(
        sorted(found.values(), key=lambda margin: (margin.tensor.startswith("gradient"), margin.tensor, margin.dtype))
    )
