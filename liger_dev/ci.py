"""The reports of several kernels in, their table out, and what a continuous integration reads: JUnit XML and annotations."""

import re

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

_VERDICT = re.compile(r"\*\*(PASSED|FAILED)\*\*: (.*)")
_FLAG = re.compile(r"> \*\*Catastrophic:\*\* (.*)")
_CASES = re.compile(r"^\*\*(?:Passed|Failed): .*?(\d+) cases on ", re.MULTILINE)
_KILLED = re.compile(r"^Planted bugs: .*\((\d+\.\d%)\)", re.MULTILINE)
_MARGIN = re.compile(r"\| (\d+\.\d\d) \|[^|]*\|$", re.MULTILINE)
_COLUMNS = ("kernel", "verdict", "cases", "planted bugs found", "least margin", "seconds")
_ERROR = re.compile(r"^- `([^`]*)`: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Judged:
    """One kernel's validation: its report, or what stopped it before there was one."""

    name: str
    passed: bool
    markdown: str
    stopped: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        found = _VERDICT.search(self.markdown)
        return self.stopped or (found[2] if found else "there is no report")

    @property
    def flags(self) -> list[str]:
        return _FLAG.findall(self.markdown)


def table(judged: Sequence[Judged]) -> str:
    """A row a kernel with what its grader found, then why each failed that did, then how many passed."""
    rows = [_COLUMNS, *map(_row, judged)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    failed = [one for one in judged if not one.passed]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines += [f"{one.name}: {one.verdict}" for one in failed]
    names = f"; failed: {', '.join(one.name for one in failed)}" if failed else ""
    return "\n".join([*lines, f"{len(judged) - len(failed)} of {len(judged)} passed{names}"])


def _row(one: Judged) -> tuple[str, ...]:
    graded = one.markdown.partition("\n## Grader\n")[2].partition("\n## ")[0]
    found = [next(iter(pattern.findall(graded)), "-") for pattern in (_CASES, _KILLED)]
    margin = min(_MARGIN.findall(graded), key=float, default="-")
    return (one.name, "passed" if one.passed else "FAILED", *found, margin, f"{one.seconds:.0f}")


def junit(judged: Sequence[Judged]) -> str:
    """A suite with a case a kernel: a failure says why and holds the report, without which nobody can judge it."""
    failed = sum(not one.passed for one in judged)
    counts = {"tests": str(len(judged)), "failures": str(failed), "errors": "0", "skipped": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "liger-dev validate", **counts})
    for one in judged:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "kernels", "name": one.name})
        if not one.passed:
            failure = ElementTree.SubElement(case, "failure", {"message": _clean(one.verdict)})
            failure.text = _clean(one.markdown)
        elif one.markdown:
            ElementTree.SubElement(case, "system-out").text = _clean(one.markdown)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def annotations(judged: Sequence[Judged]) -> Iterator[str]:
    """GitHub's workflow commands: an error a kernel that failed, a warning a thing that was accepted, a notice else."""
    for one in judged:
        file = f"kernels/ops/{one.name}.py"
        kind = "notice" if one.passed else "error"
        yield _command(kind, file, f"{one.name}: {'passed' if one.passed else 'failed'}", one.verdict)
        for flag in one.flags:
            yield _command("warning" if one.passed else "error", file, f"{one.name}: catastrophically worse", flag)
        for test, message in _failing_tests(one.markdown):
            yield _command("error", test.split("::")[0], test.split("::")[-1], message)


def _failing_tests(markdown: str) -> list[tuple[str, str]]:
    section = markdown.partition("### Failing tests")[2].partition("###")[0]
    return _ERROR.findall(section)


def _command(kind: str, file: str, title: str, message: str) -> str:
    return f"::{kind} file={_property(file)},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """GitHub ends a command at a line's end, and reads % as an escape."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _clean(text: str) -> str:
    """Without what XML can't hold: a test may print any byte."""
    return re.sub(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "\N{REPLACEMENT CHARACTER}", text)
