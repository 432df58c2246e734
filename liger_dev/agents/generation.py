"""A reference and its profile in, the text of an op file by an agent out; and its measurements."""

import ast

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from liger_dev.agents.loop import Agent
from liger_dev.agents.prompts import prompt
from liger_dev.agents.seat import Seat
from liger_dev.agents.staging import Staging
from liger_dev.agents.tools import Arguments
from liger_dev.agents.tools import Refused
from liger_dev.agents.tools import Tool
from liger_dev.agents.trials import trials
from liger_dev.analyzer import Analysis
from liger_dev.bench.csv import Measurement
from liger_dev.benchmark import run_benchmark
from liger_dev.checkstyle import checkstyle
from liger_dev.profile import print_profile
from liger_dev.records import digest
from liger_dev.render import parse


class SubmitKernel(Arguments):
    summary: str = Field(description="two or three sentences for the reviewer: the schedule, and why")


def write_op(
    analysis: Analysis,
    files: Mapping[str, str],
    seat: Seat,
    *,
    compiled: str = "",
    remark: str = "",
    previous: str = "",
) -> tuple[str, str]:
    """The op file that the agent hands in, and what it says of it.

    The file parses, passes checkstyle and defines what the other files import.

    Args:
        files: all other files of the kernel by path, as they will be written; they are locked.
        compiled: the compiler's op file, where there is one.
        remark, previous: what a reviewer wants otherwise, and of which op file.
    """
    profile, name = analysis.profile, analysis.reference.name
    op = f"kernels/ops/{name}.py"
    base = {**files, **({op: previous or compiled} if previous or compiled else {})}
    staging = Staging(seat.root, name, frozenset({op}), base=base)
    needed = (profile.function_class_name, f"{name}_forward", f"{name}_backward")
    values = {
        "name": name,
        "op": op,
        "function_class": profile.function_class_name,
        "reference": analysis.reference.text,
        "profile": print_profile(profile),
        "signature": ", ".join(
            [t.name for t in analysis.reference.tensors] + [s.name for s in analysis.reference.scalars]
        ),
        "compiled": compiled,
        "remark": remark,
        "previous": previous,
    }

    def submit(given: SubmitKernel) -> dict[str, Any]:
        return {"op": styled(staging, [op], needed)[op], "summary": given.summary}

    tools = (
        *staging.reading(),
        *staging.writing(),
        *trials(staging, seat.say),
        Tool("submit_kernel", f"Hands in {op} as it is staged.", SubmitKernel, submit, final=True),
    )
    system = prompt("system", {"role": "generator", "final": "submit_kernel"})
    basis = digest(previous or compiled)
    handed = seat.talk(Agent("generator", system, prompt("generate", values), tools, staging.files, basis))
    return handed["op"], handed["summary"]


def styled(staging: Staging, paths: list[str], needed: Collection[str]) -> dict[str, str]:
    """The staged files after ruff's automatic fix. Raises Refused with what is left, or if the op lacks a needed name."""
    op = f"kernels/ops/{staging.name}.py"
    if missing := sorted(set(needed) - defined(staging.text(op), op)):
        raise Refused(f"{op} does not define {', '.join(missing)}")
    with staging.copy() as copy:
        style = checkstyle(copy.tree, copy.root, paths, ())
        if not style.passed:
            raise Refused("ruff still finds: " + "; ".join(map(str, style.after.violations)))
        return {path: copy.text(path) for path in paths}


def defined(text: str, where: str) -> set[str]:
    """The functions and classes at the top of a file."""
    return {node.name for node in parse(text, where).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def measured(files: Mapping[str, str], name: str, seat: Seat) -> tuple[Measurement, ...]:
    """The benchmark's rows for a kernel's files, on this machine's GPU; none if it fails."""
    with Staging(seat.root, name, frozenset(), base=files).copy() as copy:
        return run_benchmark(copy, {}, seat.say).rows
