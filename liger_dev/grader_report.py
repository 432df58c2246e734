"""A verdict in, the report's section and its lines for a terminal out."""

import re

from collections.abc import Iterator
from collections.abc import Sequence

from liger_dev.grading.verdict import NOT_ALLOWED
from liger_dev.grading.verdict import Contract
from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Margin
from liger_dev.grading.verdict import Strength
from liger_dev.grading.verdict import Verdict

_SHOWN_FAULTS = 12
_NUMBERS = re.compile(r"\d+")


def section(verdict: Verdict | None, why: str = "") -> Iterator[str]:
    """The Markdown section `Grader`; `why` is the reason that there is no verdict."""
    yield "## Grader"
    yield ""
    if verdict is None:
        yield f"Not run: {why}."
        yield ""
        return
    yield f"**{summary(verdict)}**"
    yield ""
    for fault in verdict.faults[:_SHOWN_FAULTS]:
        yield f"- {fault}"
    if len(verdict.faults) > _SHOWN_FAULTS:
        yield f"- … and {len(verdict.faults) - _SHOWN_FAULTS} more"
    yield ""
    if verdict.margins:
        yield "Truth is the reference in float64. A bound is four times the error of eager PyTorch, or a few units in the last"
        yield "place; the margin is bound / error, at the case where it is smallest. A repair is shown the kinds"
        yield "of cases that fail, and never their sizes or figures."
        yield ""
        yield "| Tensor | Dtype | Worst error | Eager's error | Bound | Margin | Case |"
        yield "|---|---|---:|---:|---:|---:|---|"
        yield from map(_margin_row, verdict.margins)
        yield ""
    if verdict.contracts:
        yield "| Contract | |"
        yield "|---|---|"
        yield from (f"| {c.name} | {c.outcome}{f' ({c.note})' if c.note else ''} |" for c in verdict.contracts)
        yield ""
    for phase in ("forward", "backward"):
        names = [f"`{name}` in {count} cases" for where, name, count in verdict.launches if where == phase]
        if names:
            yield f"Launched in {phase}: {', '.join(names)}."
    yield ""
    yield from _strength(verdict.strength)
    yield from (f"- {text}" for text in verdict.left_out)
    yield ""


def summary(verdict: Verdict) -> str:
    if verdict.passed:
        rate = f", the tests find {verdict.strength.kill_rate:.0%} of planted bugs" if verdict.strength else ""
        return f"Passed: {verdict.cases} cases on {verdict.device}{rate}"
    if not verdict.cases:
        refused = any(fault.kind == NOT_ALLOWED for fault in verdict.faults)
        return "Refused without running it" if refused else "Failed: nothing could be graded"
    faults = "1 fault" if len(verdict.faults) == 1 else f"{len(verdict.faults)} faults"
    return f"Failed: {faults} in {verdict.cases} cases on {verdict.device or 'a device that it did not tell'}"


def brief(verdict: Verdict) -> list[str]:
    """The verdict as one stage among others tells it: kill rate, the smallest margin, and what was launched."""
    told = [f"graded: {summary(verdict)}"]
    least = min(verdict.margins, key=lambda margin: margin.margin, default=None)
    if least is not None:
        told.append(f"least margin {least.margin:.2f}: {least.tensor}, {least.dtype} ({least.case})")
    for phase in ("forward", "backward"):
        names = [f"{name} in {count} cases" for where, name, count in verdict.launches if where == phase]
        told += [f"launched in {phase}: {', '.join(names)}"] if names else []
    return told


def held_out(verdict: Verdict) -> str:
    """The verdict as a repair may see it: kinds of cases, without the sizes that are held out; findings in the text whole.

    What is held out can't be fitted to.
    """
    faults = dict.fromkeys(
        str(f) if f.kind == NOT_ALLOWED else f"{f.kind} ({_NUMBERS.sub('n', f.where)})" for f in verdict.faults
    )
    contracts = [f"{contract.name}: {contract.outcome}" for contract in verdict.contracts]
    return "\n".join([summary(verdict), *faults, *contracts])


def _margin_row(m: Margin) -> str:
    return f"| {m.tensor} | {m.dtype} | {m.error:.3g} | {m.eager_error:.3g} | {m.bound:.3g} | {_margin(m)} | {m.case} |"


def _strength(strength: Strength | None) -> Iterator[str]:
    if strength is None or not strength.mutants:
        return
    counted, killed = strength.counted, sum(m.outcome == "killed" for m in strength.counted)
    yield f"Planted bugs: the tests found {killed} of {len(counted)} ({strength.kill_rate:.1%}), sampled from {strength.candidates}."
    yield ""
    for outcome in ("survived", "excluded"):
        members = [mutant for mutant in strength.mutants if mutant.outcome == outcome]
        if members:
            yield f"{outcome.capitalize()}:"
            yield ""
            yield from (
                f"- line {m.line}, {m.operator}, `{m.change}`{f': {m.note}' if m.note else ''}" for m in members
            )
            yield ""


def lines(verdict: Verdict) -> list[str]:
    """The verdict for a terminal."""
    told = [summary(verdict), *_faults(verdict.faults)]
    if verdict.margins:
        told += ["  margins (bound / error, the smallest of each; below 1 is a fault):"]
        told += [f"    {_margin(m):>5}  {m.tensor}, {m.dtype} ({m.case})" for m in verdict.margins]
    told += [f"  {outcome}: {'; '.join(names)}" for outcome, names in _by_outcome(verdict.contracts).items()]
    for phase in ("forward", "backward"):
        names = [f"{name} ({count} cases)" for where, name, count in verdict.launches if where == phase]
        told += [f"  launched in {phase}: {', '.join(names)}"] if names else []
    told += [f"  left out: {text}" for text in verdict.left_out]
    told += [f"  accepted: {', '.join(verdict.accepted)}"] if verdict.accepted else []
    told += [f"  protection: {text}" for text in verdict.protection]
    return [*told, f"  seed: {verdict.seed}"]


def _faults(faults: Sequence[Fault]) -> Iterator[str]:
    """What is wrong, then what in the text is not allowed, each subject once with its lines."""
    for fault in faults:
        if fault.kind != NOT_ALLOWED:
            yield f"  {fault.kind} ({fault.where})" if fault.where else f"  {fault.kind}"
            yield f"    {fault.what}"
    found: dict[str, list[str]] = {}
    for fault in faults:
        if fault.kind == NOT_ALLOWED:
            found.setdefault(fault.what, []).append(fault.where)
    for what, places in found.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"  not allowed ({places[0]}{more})"
        yield f"    {what}"
    if found:
        yield "  --allow SUBJECT accepts what stands before the colon; --allow all accepts all of it, for code that you trust"


def _by_outcome(contracts: Sequence[Contract]) -> dict[str, list[str]]:
    """Names of contracts by outcome, those that were not run by the reason too; what broke comes first."""
    found: dict[str, list[str]] = {"broken": [], "held": []}
    for contract in contracts:
        why = f" ({contract.note})" if contract.outcome == "not run" and contract.note else ""
        found.setdefault(f"{contract.outcome}{why}", []).append(contract.name)
    return {outcome: names for outcome, names in found.items() if names}


def _margin(m: Margin) -> str:
    return f"{m.margin:.2f}" if m.error else "exact"
