"""Takes a test file in a scratch copy, runs pytest on it in a child, and gives each test's outcome as the parent sees it.

An exit code alone is never a pass: the outcomes come from the junit file, and that must name every test function
which the parent reads in the test file's syntax tree.
"""

import ast
import re
import signal
import sys

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from liger_dev.sandbox import Completed
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child
from liger_dev.scratch import KernelCopy

PASSED = "passed"
SKIPPED = "skipped"
FAILED = "failed"

_TOOL = Path(__file__).resolve().parent.parent
_TAIL = 2000
_SAYS_NOTHING = ("", "collection failure", "internal error")
_USAGE = 4
_NONE_COLLECTED = 5


@dataclass(frozen=True)
class Case:
    """One test. `message` is the exception's own text or the reason of a skip, `detail` the traceback of a failure."""

    id: str
    outcome: str
    message: str = ""
    detail: str = ""


@dataclass(frozen=True)
class TestRun:
    """One child. Without failures it is a pass: whatever is wrong with the run as a whole is a failed case too."""

    __test__ = False  # pytest: no class of tests

    cases: tuple[Case, ...]
    protection: tuple[str, ...]

    @property
    def failures(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.outcome == FAILED)

    def count(self, outcome: str) -> int:
        return sum(case.outcome == outcome for case in self.cases)


def run_tests(copy: KernelCopy, env: Mapping[str, str], limits: Limits, only: Sequence[str] = ()) -> TestRun:
    """Runs the kernel's test file, or the tests named in `only`, in a child with TRITON_INTERPRET and others in `env`."""
    folder = copy.folder()
    junit = folder / "junit.xml"
    targets = [str(copy.tree / target) for target in only or [copy.test]]
    argv = [sys.executable, "-m", "pytest", *targets, "-q", "--tb=short", "-p", "no:cacheprovider"]
    argv += [f"--junitxml={junit}", "-o", "junit_family=xunit1", f"--rootdir={copy.tree}", f"--confcutdir={copy.tree}"]
    done = run_child(argv, scratch=folder, limits=limits, env={**child_env(copy), **env})
    if only and done.returncode == _USAGE:
        # Pytest did not find a test by the name in its own result: an unusual id.
        return run_tests(copy, env, limits)
    cases = _parse(junit, copy)
    expected = () if only else test_functions(copy.text(copy.test))
    fault = _fault(done, cases, expected)
    if fault:
        cases = (*cases, Case(copy.test, FAILED, fault, portable(_tail(done), copy)))
    return TestRun(cases, done.protection)


def child_env(copy: KernelCopy) -> dict[str, str]:
    """What every child on the copy needs: it imports the copy's kernels first, and leaves no byte code behind."""
    return {
        "PYTHONPATH": f"{copy.tree}:{_TOOL}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        # Stated, since the caller's own setting would be handed on.
        "TRITON_INTERPRET": "0",
    }


def test_functions(text: str) -> tuple[str, ...]:
    """Names of the test functions that a test file defines, at the top or in its test classes."""
    tree = ast.parse(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    bodies = [node for body in (tree.body, *(owner.body for owner in classes)) for node in body]
    return tuple(node.name for node in bodies if isinstance(node, ast.FunctionDef) and node.name.startswith("test"))


test_functions.__test__ = False  # type: ignore[attr-defined]


def portable(text: str, copy: KernelCopy) -> str:
    """`text` without what differs from run to run and from machine to machine: folders, addresses, durations."""
    relative = text.replace("../../tree/", "").replace("../../tree", ".")
    for folder, name in (
        (f"{copy.tree}/", ""),
        (copy.tree, "."),
        (copy.out, "<scratch>"),
        (copy.root, "."),
        (_TOOL, "<tool>"),
    ):
        relative = relative.replace(str(folder), name)
    relative = re.sub(r"<scratch>/[0-9a-f]{16}", "<scratch>", relative.replace(sys.prefix, "<python>"))
    relative = re.sub(r"[^\s\"']*/(?:site|dist)-packages/", "<packages>/", relative)
    return re.sub(r"\bin \d+\.\d+s\b", "in …", re.sub(r"0x[0-9a-f]{6,}", "0x…", relative))


def _parse(junit: Path, copy: KernelCopy) -> tuple[Case, ...]:
    if not junit.is_file():
        return ()
    try:
        root = ElementTree.fromstring(junit.read_text(errors="replace"))
    except ElementTree.ParseError:
        return ()
    return tuple(_case(element, copy) for element in root.iter("testcase"))


def _case(element: ElementTree.Element, copy: KernelCopy) -> Case:
    module = copy.test.removesuffix(".py").replace("/", ".")
    owner = element.get("classname", "")
    parts = (copy.test, *owner.removeprefix(module).split("."), element.get("name", ""))
    # Errors of pytest itself and of the collection belong to no test function.
    id = "::".join(part for part in parts if part) if owner.startswith(module) else copy.test
    for outcome in ("failure", "error"):
        found = element.find(outcome)
        if found is not None:
            detail = portable(found.text or "", copy)
            message = portable(found.get("message", ""), copy)
            return Case(id, FAILED, _errors(detail) if message in _SAYS_NOTHING else message, detail)
    skipped = element.find("skipped")
    return Case(id, PASSED) if skipped is None else Case(id, SKIPPED, portable(skipped.get("message", ""), copy))


def _errors(detail: str) -> str:
    """The exception's own lines in a traceback, or its last line."""
    lines = detail.strip().splitlines()
    return "\n".join(line[1:].strip() for line in lines if line.startswith("E")) or "".join(lines[-1:])


def _fault(done: Completed, cases: tuple[Case, ...], expected: Sequence[str]) -> str:
    """Why the run as a whole is no pass, whatever the single tests say; empty if nothing is wrong."""
    failing = any(case.outcome == FAILED for case in cases)
    ran = {re.split(r"[\[:]", case.id.rsplit("::", 1)[-1])[0] for case in cases}
    missing = [name for name in expected if name not in ran]
    if done.timed_out:
        return "the tests did not end within the time limit"
    if done.returncode < 0:
        return f"the test process was killed by {_signal(-done.returncode)}"
    if not cases and done.returncode == _NONE_COLLECTED:
        return "no test was collected"
    if not cases:
        return f"the test process ended with exit code {done.returncode} and left no result"
    if all(case.outcome == SKIPPED for case in cases):
        return "every test was skipped"
    if missing and not failing:
        return f"tests that the file defines did not run: {', '.join(missing)}"
    if done.returncode != 0 and not failing:
        return f"pytest ended with exit code {done.returncode} although no test failed"
    return ""


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in {int(item) for item in signal.Signals} else f"signal {number}"


def _tail(done: Completed) -> str:
    return "\n".join(part[-_TAIL:].strip() for part in (done.stdout, done.stderr) if part.strip())
