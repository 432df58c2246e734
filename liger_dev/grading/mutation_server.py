"""`python -m liger_dev.grading.mutation_server JOB OUT`: runs a test file against op files, and writes each one's outcome.

torch, triton and pytest with its plugins are imported once; each run is a fork of this process, which has one thread
and imports no op itself, so that a fork can neither hang on another's lock nor leave anything behind. Forks of one
mutant are not safe to share: each mutant gets its own. A bug in a kernel meets the tests and cases that launch it.
"""

import gc
import hashlib
import json
import os
import select
import signal
import sys
import tempfile
import time

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from torch.utils._python_dispatch import TorchDispatchMode

from liger_dev.grading import interpreter
from liger_dev.grading import wire
from liger_dev.grading.candidate_child import answer
from liger_dev.grading.candidate_child import candidate
from liger_dev.grading.reference_child import split
from liger_dev.grading.trace import Trace
from liger_dev.grading.trace import install

# A mutant may take this long, or so many times as long as the original: not a fixed time, since machines are busy.
SECONDS, TIMES = 30.0, 5
# Nobody reads why an assertion of a mutant's failed: rewriting test files and writing tracebacks took longer than tests.
_QUICK = ("-q", "-x", "--assert=plain", "--tb=no", "-p", "no:cacheprovider")

_SUMMED = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_NOT_COLLECTED = (2, 3, 4, 5)
# What this process and its forks launch.
_TRACE = Trace()


class _Passive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The first dispatch mode of a process imports much: here, before the forks."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Watcher:
    """A plugin of pytest: runs the tests in `only`, if any, in the given order, and tells how long each took, what it
    launched, and which failed first."""

    def __init__(self, order: dict[str, float], only: Sequence[str]) -> None:
        self.order = order
        self.only = only
        self.seconds: dict[str, float] = {}
        self.launched: dict[str, list[str]] = {}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if not self.only or item.name in self.only]
        items.sort(key=lambda item: self.order.get(item.name, 0.0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.when == "call" and report.passed:
            self.seconds[name] = report.duration
            self.launched[name] = _launched()
        if report.failed and not self.failed:
            self.failed = name


def _launched() -> list[str]:
    """The kernels that were launched since the last call."""
    names = sorted({name for _, name, _ in _TRACE.launches})
    _TRACE.launches.clear()
    return names


def _launching(launched: dict[str, list[str]], kernel: str) -> list[str]:
    """What launched a kernel; all if nothing did."""
    return [name for name, kernels in launched.items() if kernel in kernels] or [*launched]


def run(tree: Path, test: str, order: dict[str, float], seconds: float, only: Sequence[str] = ()) -> dict[str, Any]:
    """One run of the test file, or of the tests in `only`, ended at its first failure: its exit code, that failure, and
    what each test took and launched."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_fork(tree, test, _Watcher(order, only), writing)
    os.close(writing)
    data, timed_out = _read(reading, time.monotonic() + seconds)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    told = json.loads(data) if data and not timed_out else {}
    return {
        # A run that left no word is no pass.
        "code": os.waitstatus_to_exitcode(status) or int(not told),
        "failed": "time limit" if timed_out else told.get("failed", ""),
        **told,
    }


def probe(tree: Path, op: Path, job: dict[str, Any], seconds: float, only: Sequence[str] = ()) -> dict[str, list[str]]:
    """For each of the grader's cases, or of those in `only`: a digest of all that the op gives, and what it launched.
    Empty if it did not end well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        sys.path.insert(0, str(tree))
        call = candidate(op, job["function"], job["names"])
        given_in = {}
        for case in job["cases"]:
            if not only or case["file"] in only:
                inputs, upstream = split(wire.read(Path(job["folder"]), case["file"])[1])
                record, found = answer(call, {**case, "watched": False}, inputs, upstream, Trace())
                header, data = wire.pack(found)[0], wire.pack(_unsigned_zeros(found))[1]
                given = json.dumps([record["error"], record["after"], header]).encode() + data
                given_in[case["file"]] = [hashlib.sha256(given).hexdigest(), *_launched()]
        os.write(writing, json.dumps(given_in).encode())
        os._exit(0)
    os.close(writing)
    data, timed_out = _read(reading, time.monotonic() + seconds)
    if timed_out:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told: dict[str, list[str]] = json.loads(data) if data and not timed_out else {}
    return told


def _unsigned_zeros(found: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    """The same numbers, with one zero: no test tells the two apart, and none has to."""
    return {name: x + 0.0 if x is not None and x.dtype in _SUMMED else x for name, x in found.items()}


def _in_fork(tree: Path, test: str, watcher: _Watcher, writing: int) -> None:
    os.chdir(tree)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.path.insert(0, str(tree))
    code = pytest.main([*_QUICK, f"--rootdir={tree}", f"--confcutdir={tree}", test], plugins=[watcher])
    told = {"failed": watcher.failed, "seconds": watcher.seconds, "launched": watcher.launched}
    os.write(writing, json.dumps(told).encode())
    os._exit(int(code))


def _read(stream: int, deadline: float) -> tuple[bytes, bool]:
    chunks: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([stream], [], [], left)[0]:
            break
        chunk = os.read(stream, 1 << 16)
        if not chunk:
            os.close(stream)
            return b"".join(chunks), False
        chunks.append(chunk)
    os.close(stream)
    return b"", True


def _prepare() -> None:
    """Does once what each fork would do again: imports, and the collection of garbage among what they made."""
    torch.set_num_threads(1)
    interpreter.install()
    install(_TRACE)
    with _Passive():  # type: ignore[no-untyped-call]
        torch.ones(1) * 2
    with tempfile.TemporaryDirectory() as empty:
        pytest.main([*_QUICK, f"--rootdir={empty}", f"--confcutdir={empty}", empty])
    gc.collect()
    gc.freeze()


def main(job_path: Path, out: Path) -> None:
    """Runs the original, then, where it passes, each tree's share of the mutants in a worker of its own."""
    _prepare()
    job = json.loads(job_path.read_text())
    first, start = Path(job["trees"][0]), time.monotonic()
    deadline = start + job["seconds"]
    found = run(first, job["test"], {}, job["seconds"])
    cases = probe(first, first / job["op"], job["probe"], job["seconds"]) if not found["code"] else {}
    limit = max(SECONDS, TIMES * (time.monotonic() - start))
    _write(out / "original.jsonl", "original", found, 0)
    number = 0 if found["code"] else len(job["trees"])
    workers = [_worker(job, one, found, cases, _Time(deadline, limit), out) for one in range(number)]
    ended = [os.waitpid(worker, 0)[1] for worker in workers]
    sys.exit(1 if any(ended) else 0)


def _imported(row: Mapping[str, Any]) -> bool:
    """Whether the tests could be collected at all, or one failed."""
    return row["code"] not in _NOT_COLLECTED or bool(row["failed"])


@dataclass(frozen=True)
class _Time:
    """When all mutants must be done with, and the seconds that each one may take."""

    deadline: float
    limit: float

    @property
    def left(self) -> float:
        return min(self.limit, self.deadline - time.monotonic())

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.deadline


def _worker(
    job: dict[str, Any], number: int, found: dict[str, Any], cases: dict[str, list[str]], allowed: _Time, out: Path
) -> int:
    """A fork that runs every so many-th mutant in the tree of its own, as many as it is `allowed` time for; `found` and
    `cases` are the original's."""
    worker = os.fork()
    if worker:
        return worker
    tree = Path(job["trees"][number])
    op = tree / job["op"]
    bugs, enough = 0, -(-job["enough"] // len(job["trees"]))
    for name, text, kernel in job["texts"][number :: len(job["trees"])]:
        if bugs >= enough or allowed.over:
            break
        op.write_text(text)
        told = run(
            tree, job["test"], found["seconds"], allowed.left, _launching(found["launched"], kernel) if kernel else ()
        )
        same = 0
        if not told["code"]:
            asked = _launching(cases, kernel)
            given = probe(tree, op, job["probe"], allowed.left, asked)
            same = len(asked) if given == {case: cases[case] for case in asked} else 0
        if allowed.over:
            break  # what ended with the time for all was not judged
        _write(out / f"worker-{number}.jsonl", name, told, same)
        bugs += not same and _imported(told)
    os._exit(0)


def _write(file: Path, name: str, found: dict[str, Any], same: int) -> None:
    row = {"name": name, "code": found["code"], "failed": found["failed"], "same": same, "imported": _imported(found)}
    with file.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
