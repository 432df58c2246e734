"""Takes a kernel's name and its workspace, and gives the Results report with the files to write; it disproves only.

Cheap first: checkstyle, compilation and unit tests with their repairs, then the benchmark and its plots. Everything
runs in a scratch copy; what it changed reaches the workspace through `Report.changes` alone: the report and what was
measured in any case, mended files only on a pass.
"""

import ast
import base64
import hashlib
import os
import shutil
import time

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from liger_dev import __version__
from liger_dev import evidence
from liger_dev import render
from liger_dev.benchmark import Benchmark
from liger_dev.benchmark import not_measured
from liger_dev.benchmark import profile_with_ncu
from liger_dev.benchmark import recorded
from liger_dev.benchmark import recorded_profile
from liger_dev.benchmark import run_benchmark
from liger_dev.benchmark import samples_path
from liger_dev.checkstyle import Checkstyle
from liger_dev.checkstyle import checkstyle
from liger_dev.compilation import compile_kernels
from liger_dev.gate import Gate
from liger_dev.gate import Mend
from liger_dev.gate import gpu_name
from liger_dev.gate import run_gate
from liger_dev.grader import divisors_of_copy
from liger_dev.grader import grade_kernel
from liger_dev.grading.verdict import Verdict
from liger_dev.profile import parse_profile
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.repair import unified_diff
from liger_dev.report import Findings
from liger_dev.report import render as render_report
from liger_dev.scratch import KernelCopy
from liger_dev.scratch import kernel_copy

_PACKAGES = ("torch", "triton", "numpy", "pytest", "ruff")


@dataclass(frozen=True)
class Report:
    """The validator's output. `changes` holds the report, and on a pass the mended files, the CSV and the plots."""

    passed: bool
    markdown: str
    changes: ChangeSet

    def to_json(self) -> dict[str, Any]:
        return {"passed": self.passed, "markdown": self.markdown, "changes": self.changes.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Report":
        return cls(data["passed"], data["markdown"], ChangeSet.from_json(data["changes"]))


def _silent(message: str) -> None:
    return None


def validate(
    name: str,
    root: Path,
    *,
    benchmark: bool = True,
    ncu: bool = False,
    accept: Sequence[str] = (),
    say: Callable[[str], None] = _silent,
    mend: Mend | None = None,
    account: Callable[[Gate, str], str] | None = None,
    grade: bool = True,
    talks: Mapping[str, Any] | None = None,
) -> Report:
    """Validates the kernel `name` of the workspace `root`; `say` is told of each step in a line.

    `mend` makes the gate's repairs in place of the builtin moves; `account` writes to the person of a gate that has
    failed, from the op file as it was judged. `accept` are metrics (`speed`, `memory`) that may be catastrophically
    worse than PyTorch's. `talks` are transcripts of agents that had a hand in the kernel, by file name. Without `grade`
    there is no verdict of the grader, and so no evidence: that is for tests of the other gates.

    Raises BadInput when a file of the kernel is missing or its profile does not fit the schema. A kernel that fails
    is no exception but a report.
    """
    with kernel_copy(name, root) as copy, ThreadPoolExecutor(1) as aside:
        profile = parse_profile(copy.text(copy.profile), copy.profile)
        integers = frozenset(tensor.name for tensor in profile.forward_inputs if tensor.dtype in ("int", "bool"))
        say("checkstyle")
        style = checkstyle(copy.tree, copy.root, copy.python_files, copy.locked)
        device = gpu_name() if style.passed else ""
        # Beside the compilation and the tests, which leave a core idle.
        divisors = aside.submit(divisors_of_copy, copy, profile) if grade and style.passed else None
        grader = (lambda copy: grade_kernel(copy, profile, device, divisors.result)) if divisors else None
        gate = run_gate(copy, device, integers, compile_kernels, say, mend, grader) if style.passed else None
        speed = not_measured(_why_no_benchmark(gate, device, benchmark))
        if not speed.reason:
            say("benchmark")
            # Without a tag: it is the op itself that is judged.
            target = {name: value for name, value in os.environ.items() if name == "LIGER_BENCH_TARGET"}
            speed = run_benchmark(copy, target, say)
        elif benchmark and gate is not None and gate.passed:
            speed = recorded(copy, os.environ) or speed
        profiled, kept = _ncu(copy, ncu, device if speed.data else "", say)
        said = ""
        if account is not None and gate is not None and gate.attempts and not (gate.passed or gate.tampered):
            say("writing to the person")
            said = account(gate, copy.text(copy.op))
        speed = replace(speed, data=(*speed.data, *kept))
        return _report(copy, style, gate, speed, profiled, said, tuple(accept), talks or {})


def _why_no_benchmark(gate: Gate | None, device: str, wanted: bool) -> str:
    if gate is None or not gate.passed:
        return "the kernel did not pass the stages before"
    if not device:
        return "there is no CUDA GPU here"
    return "" if wanted else "it was not asked for (`--no-benchmark`)"


def _report(
    copy: KernelCopy,
    style: Checkstyle,
    gate: Gate | None,
    speed: Benchmark,
    ncu: str,
    account: str,
    accepted: tuple[str, ...],
    talks: Mapping[str, Any],
) -> Report:
    verdict = gate.judged.verdict if gate and gate.attempts else None
    findings = Findings(
        name=copy.name,
        style=style,
        gate=gate,
        resources=gate.attempts[-1].compiled.resources if gate and gate.attempts else (),
        rows=speed.rows,
        not_measured=speed.reason,
        benchmark_fault=speed.fault,
        plots=tuple(path for path, _ in speed.plots),
        recorded=speed.recorded,
        ncu=ncu,
        versions=(("liger-dev", __version__), *((package, _version(package)) for package in _PACKAGES)),
        seeds=_seeds(copy),
        account=account,
        verdict=verdict,
        samples=speed.samples,
        noise=speed.noise,
        accepted=accepted,
        state=unified_diff((copy.root / copy.op).read_text(), copy.text(copy.op), copy.op),
    )
    markdown = render_report(findings)
    results = _change(copy, f"benchmark/results/{copy.name}.md", markdown.encode())
    written = [*speed.data, *(_change(copy, path, data) for path, data in speed.plots if data)]
    if findings.passed:
        mended = [path for path in copy.python_files if copy.text(path) != (copy.root / path).read_text()]
        written = [*(_mended(copy, path) for path in mended), *written]
    bundled = [_evidence(copy, verdict, findings, written, talks)] if verdict is not None else []
    return Report(findings.passed, markdown, ChangeSet((*written, results, *bundled)))


def _evidence(
    copy: KernelCopy, verdict: Verdict, findings: Findings, written: Sequence[Change], talks: Mapping[str, Any]
) -> Change:
    """What someone else needs to repeat the grading and to compare."""
    profile = parse_profile(copy.text(copy.profile), copy.profile)
    stamp = render.read_stamp(copy.text(copy.op))
    changed = {copy.op: copy.text(copy.op).encode()} | {change.path: change.data() for change in written}
    graded = evidence.digests(copy.root, (copy.op, *copy.locked), changed)
    facts = {
        "kernel": copy.name,
        "sha256": graded,
        "measured": evidence.digests(copy.root, [samples_path(copy.name)], changed),
        "talks": talks or evidence.talks_before(copy.root, copy.name, graded[copy.op]),
        "template": stamp["template"] if stamp else "",
        "provenance": profile.provenance,
        "versions": dict(findings.versions),
        "attempts": len(findings.gate.attempts) if findings.gate else 0,
        "repeat": f"liger-dev validate {copy.name}",
    }
    return _change(copy, evidence.bundle_path(copy.name), evidence.bundle(verdict, facts).encode())


def _change(copy: KernelCopy, path: str, data: bytes) -> Change:
    target = copy.root / path
    base = hashlib.sha256(target.read_bytes()).hexdigest() if target.is_file() else ""
    if path.endswith(".png"):
        return Change(path, base64.b64encode(data).decode(), base, binary=True)
    return Change(path, data.decode(), base)


def _mended(copy: KernelCopy, path: str) -> Change:
    """A file as the gate left it. A generated one gets a new stamp: the tool's own repair is no edit by hand."""
    return _change(copy, path, render.restamp((copy.root / path).read_text(), copy.text(path), "", "").encode())


def _ncu(copy: KernelCopy, wanted: bool, device: str, say: Callable[[str], None]) -> tuple[str, tuple[Change, ...]]:
    """A report's words on the profile, made now or earlier of the same op file, and the file to keep; `device` is ""
    where nothing was measured now."""
    if wanted and device and shutil.which("ncu") is not None:
        say("profiling with ncu")
        return profile_with_ncu(copy, device, time.strftime("%Y-%m-%d"))
    if kept := recorded_profile(copy):
        return kept, ()
    if not wanted:
        return "Not run: it was not asked for (`--ncu`).", ()
    return f"Not run: {'there is no `ncu` on the PATH' if device else 'nothing was measured'}.", ()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _seeds(copy: KernelCopy) -> str:
    """The seeds that the test and its tolerances file set, as written there."""
    found = []
    for path in (copy.test, "test/utils.py", "test/kernels/conftest.py"):
        if (copy.tree / path).is_file():
            found += [f"`{text}` in {path}" for text in _seed_texts(ast.parse(copy.text(path)))]
    return ", ".join(dict.fromkeys(found)) or "none is set in the test"


def _seed_texts(tree: ast.Module) -> list[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("seed")]
    constants = [node for node in tree.body if isinstance(node, ast.Assign) and "SEED" in ast.unparse(node.targets[0])]
    return [ast.unparse(node) for node in (*constants, *calls)]
