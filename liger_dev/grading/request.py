"""What is to be graded, as a frozen record and as JSON: the tool makes it, the grading parent reads it. Imports no torch."""

import hashlib

from dataclasses import asdict
from dataclasses import dataclass
from typing import Any

from liger_dev.records import Reference

ALLOW_ALL = "all"


@dataclass(frozen=True)
class Request:
    """A candidate and what it is measured by.

    `op` is the candidate's file, `function` the name in it that is called (empty: found in the file), `root` the folder
    that holds the package it imports from (empty: none). `hashed` are files that must not change meanwhile. `allow`
    are subjects of findings that are accepted, ALLOW_ALL accepts those of the text whole; `static` is false only in tests of the layers behind the static reading.
    `divisors` are numbers that sizes of axes must be multiples of. `cases` limits a test to the cases whose id begins
    with one of them.
    """

    op: str
    reference: Reference
    function: str = ""
    root: str = ""
    seed: int = 0
    device: str = "cpu"
    scratch: str = ""
    hashed: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    divisors: tuple[tuple[str, int], ...] = ()
    static: bool = True
    seconds: float = 120
    cases: tuple[str, ...] = ()
    test: str = ""
    tree: str = ""
    mutants: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Request":
        listed = {key: tuple(data[key]) for key in ("hashed", "allow", "cases")}
        listed["divisors"] = tuple((axis, number) for axis, number in data["divisors"])
        return cls(**{**data, **listed, "reference": Reference.from_json(data["reference"])})


def seed_of(*texts: str) -> int:
    """A seed that follows from the candidate and its reference.

    It can't be known before the candidate is written, and changes with any change of it; a candidate can't work it out
    at run time, since it may read no file. So two gradings of the same files give the same verdict.
    """
    digest = hashlib.sha256("\0".join(texts).encode()).digest()
    return int.from_bytes(digest[:6], "big")
