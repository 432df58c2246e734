"""What a grading found, as frozen records and as JSON: the parent makes them, and the tool reads them without torch."""

import json

from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

WEAK_TESTS, UNTESTED = "the tests are too weak", "the tests could not be tested"
TAMPERS = "changes files that are not its own"
# What a candidate's text may not hold; the rules are no secret.
NOT_ALLOWED = "not allowed"
NO_REPAIR = (WEAK_TESTS, UNTESTED, TAMPERS)


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. `kind` names what the candidate did, `where` the case or the line, `what` the figures."""

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.where}): {self.what}" if self.where else f"{self.kind}: {self.what}"


@dataclass(frozen=True)
class Margin:
    """How far a tensor's worst error stays below its bound. Errors are absolute; `margin` = bound / error."""

    tensor: str
    dtype: str
    case: str
    error: float
    eager_error: float
    bound: float
    scale: float

    @property
    def margin(self) -> float:
        return self.bound / self.error if self.error > 0 else float("inf")


@dataclass(frozen=True)
class Contract:
    """A promise beyond values: `outcome` is `held`, `broken` or `not run`."""

    name: str
    outcome: str
    note: str = ""


@dataclass(frozen=True)
class Mutant:
    """A changed op file. `outcome` is `killed`, `survived` or `excluded`; `note` the first failing test, or the reason."""

    operator: str
    line: int
    change: str
    outcome: str
    note: str = ""


@dataclass(frozen=True)
class Strength:
    """What the test file found of planted bugs. `candidates` is how many there were before sampling."""

    mutants: tuple[Mutant, ...] = ()
    candidates: int = 0
    fault: str = ""

    @property
    def counted(self) -> tuple[Mutant, ...]:
        return tuple(mutant for mutant in self.mutants if mutant.outcome != "excluded")

    @property
    def kill_rate(self) -> float:
        return sum(m.outcome == "killed" for m in self.counted) / len(self.counted) if self.counted else 0.0


@dataclass(frozen=True)
class Verdict:
    """A grading. It passes only if nothing is wrong and something was graded."""

    faults: tuple[Fault, ...]
    cases: int
    margins: tuple[Margin, ...] = ()
    contracts: tuple[Contract, ...] = ()
    launches: tuple[tuple[str, str, int], ...] = ()
    left_out: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    seed: int = 0
    device: str = ""
    protection: tuple[str, ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()
    strength: Strength | None = None

    @property
    def passed(self) -> bool:
        return not self.faults and self.cases > 0

    def repairable(self, op: str) -> bool:
        """Whether an edit of the op file can be the answer: not to weak tests, a cheat, or what another file holds."""
        own = [fault.kind != NOT_ALLOWED or fault.where.startswith(f"{op}:") for fault in self.faults]
        return bool(self.faults) and all(own) and all(fault.kind not in NO_REPAIR for fault in self.faults)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Verdict":
        strength = data["strength"]
        mutants = tuple(Mutant(**row) for row in strength["mutants"]) if strength else ()
        return cls(
            **{
                **data,
                "faults": tuple(Fault(**row) for row in data["faults"]),
                "margins": tuple(Margin(**row) for row in data["margins"]),
                "contracts": tuple(Contract(**row) for row in data["contracts"]),
                "strength": Strength(**{**strength, "mutants": mutants}) if strength else None,
                **{key: tuple(tuple(row) for row in data[key]) for key in ("launches", "hashes")},
                **{key: tuple(data[key]) for key in ("left_out", "accepted", "protection")},
            }
        )


def read_verdict(text: str) -> Verdict:
    """The verdict in a JSON text. Raises ValueError if it is none."""
    try:
        return Verdict.from_json(json.loads(text))
    except (TypeError, KeyError) as error:
        raise ValueError(f"no verdict: {error}") from None
