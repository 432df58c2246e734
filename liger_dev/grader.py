"""A candidate and its reference in, the verdict of the grading parent out; this process runs neither of them.

The grading parent is a process of its own, since it needs torch. It is trusted: it imports neither the candidate nor
the reference, but starts both in children under limits.
"""

import ast
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from liger_dev.analyzer import compile_in_child
from liger_dev.analyzer import load_in_child
from liger_dev.errors import BadInput
from liger_dev.errors import KernelFailed
from liger_dev.errors import Unsupported
from liger_dev.grading.request import Request
from liger_dev.grading.request import seed_of
from liger_dev.grading.verdict import UNTESTED
from liger_dev.grading.verdict import WEAK_TESTS
from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Verdict
from liger_dev.grading.verdict import read_verdict
from liger_dev.profile import KernelProfile
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.scratch import KernelCopy
from liger_dev.sources import resolve

# Beside the null candidates, which are all run.
MUTANTS = 20
LEAST_KILL_RATE = 0.95
_SECONDS = 1200
_PACKAGE = Path(__file__).resolve().parent.parent


Divisors = tuple[tuple[str, int], ...]


def grade_kernel(
    copy: KernelCopy,
    profile: KernelProfile,
    device: str,
    divisors: Callable[[], Divisors] | None = None,
    mutants: int = MUTANTS,
) -> Verdict:
    """Grades the op in a scratch copy, and its test file by planted bugs.

    Args:
        device: the GPU's name, or empty.
        divisors: gives what `divisors_of_copy` gives, where that was asked for earlier.
    """
    text = copy.text(copy.reference)
    op = copy.text(copy.op)
    reference = reference_of(text, profile)
    request = Request(
        op=str(copy.tree / copy.op),
        reference=reference,
        divisors=divisors() if divisors is not None else _divisors(reference),
        function=profile.function_class_name,
        root=str(copy.tree),
        seed=seed_of(op, text),
        device="cuda" if device else "cpu",
        hashed=tuple(str(copy.tree / path) for path in copy.locked if (copy.tree / path).is_file()),
        test=copy.test,
        tree=str(copy.tree),
        mutants=mutants,
    )
    return with_strength(_ask(replace(request, scratch=str(copy.folder()))))


def grade_file(
    op: Path, reference: Reference, *, function: str = "", seed: str = "", device: str = "", allow: Sequence[str] = ()
) -> Verdict:
    """Grades a kernel that nobody here generated.

    Args:
        function: the name to call in the file; found in it if empty.
        seed: a number; `fresh` for another one at each call; empty for the one that follows from the two files.
        allow: subjects of findings to accept, as the verdict prints them; `all` for all in the text.
    """
    op = op.resolve()
    text = op.read_text()
    if seed and seed != "fresh" and not seed.isdigit():
        raise BadInput(f"'{seed}' is no seed", "--seed", "give a number, or fresh")
    chosen = secrets.randbelow(1 << 48) if seed == "fresh" else int(seed) if seed else seed_of(text, reference.text)
    root = next(
        (
            folder
            for folder in op.parents
            if (folder / "kernels" / "ops").is_dir() and op.is_relative_to(folder / "kernels")
        ),
        None,
    )
    with tempfile.TemporaryDirectory(prefix="liger-dev-grade-") as scratch:
        request = Request(
            op=str(op),
            reference=reference,
            divisors=_divisors(reference),
            function=function,
            root=str(root or ""),
            seed=chosen,
            device="cuda" if device else "cpu",
            scratch=scratch,
            allow=tuple(allow),
        )
        return _ask(request)


def divisors_of_copy(copy: KernelCopy, profile: KernelProfile) -> Divisors:
    """What the sizes of a kernel's axes must be multiples of: the grader asks for it, and it takes seconds."""
    return _divisors(reference_of(copy.text(copy.reference), profile))


def _divisors(reference: Reference) -> Divisors:
    """What the sizes of axes must be multiples of, by the compiler's reading of the reference, not by the candidate's
    word; nothing where the compiler can't read it."""
    try:
        reply = compile_in_child(reference, {})
    except Unsupported:
        return ()
    return tuple(reply.op["op"]["divisors"].items())


def read_reference(source: str, shapes: dict[str, str], init: list[str], cwd: Path) -> Reference:
    """The reference that FILE[:NAME] names, loaded in a child. Raises BadInput when it can't be read or run."""
    path, _, entry = source.partition(":")
    name = entry if re.fullmatch(r"[a-z][a-z0-9_]*", entry) else Path(path).stem
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadInput(f"'{name}' is no operation's name", f"--reference {source}", "name the function: FILE.py:NAME")
    return load_in_child(name, resolve(name, source, shapes=shapes, init=init, cwd=cwd))


def reference_of(text: str, profile: KernelProfile) -> Reference:
    """A workspace's reference: its tensors are the profile's inputs, its scalars what else the function takes."""
    tree = ast.parse(text)
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == profile.operation_name)
    owned = {param.name: param.init for param in profile.learnable_params}
    ranges = _ranges(tree)
    tensors = tuple(
        Tensor(
            field.name,
            tuple(field.shape),
            _dtype(field.dtype),
            field.optional,
            owned.get(field.name, ""),
            range=ranges.get(field.name, ""),
        )
        for field in profile.forward_inputs
    )
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    given = [*function.args.posonlyargs, *function.args.args]
    defaults = {a.arg: d for a, d in zip(reversed(given), reversed(function.args.defaults))}
    defaults |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is not None}
    names = {tensor.name for tensor in tensors}
    choices = {param.name: tuple(param.choices) for param in profile.module_init_params}
    scalars = tuple(
        replace(_scalar(a, defaults.get(a.arg)), choices=choices.get(a.arg, ()))
        for a in arguments
        if a.arg not in names
    )
    return Reference(profile.operation_name, text, tensors, scalars, "workspace")


def _ranges(tree: ast.Module) -> dict[str, str]:
    """The axes that integers of the reference's inputs are positions along."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["RANGES"]:
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    return {}


def _dtype(text: str) -> str:
    return text if text in ("int", "bool") else "float"


def _scalar(argument: ast.arg, default: ast.expr | None) -> Scalar:
    try:
        value = ast.literal_eval(default) if default is not None else None
    except ValueError:
        value = None
    kind = ast.unparse(argument.annotation) if argument.annotation else type(value).__name__
    return Scalar(argument.arg, kind, value)


def with_strength(verdict: Verdict) -> Verdict:
    """The verdict with a fault where the tests found too few of the planted bugs."""
    strength = verdict.strength
    if strength is None:
        return verdict
    survivors = [f"{m.operator} in line {m.line} ({m.change})" for m in strength.counted if m.outcome == "survived"]
    if strength.fault:
        fault = Fault(UNTESTED, "", strength.fault)
    elif not strength.counted:
        fault = Fault(UNTESTED, "", "no bug could be planted in the op")
    elif strength.kill_rate < LEAST_KILL_RATE:
        rate = f"{strength.kill_rate:.0%} of {len(strength.counted)} planted bugs were found, {LEAST_KILL_RATE:.0%} are needed"
        fault = Fault(WEAK_TESTS, "", f"{rate}; not found: {'; '.join(survivors)}")
    else:
        return verdict
    return replace(verdict, faults=(*verdict.faults, fault))


def _ask(request: Request) -> Verdict:
    """The grading parent's verdict. Raises KernelFailed when it makes none: that is never a pass."""
    folder = Path(request.scratch)
    asked, answered = folder / "request.json", folder / "verdict.json"
    asked.write_text(json.dumps(request.to_json()))
    argv = [sys.executable, "-m", "liger_dev.grading.grade", str(asked), str(answered)]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRITON_", "ANTHROPIC_"))
    }
    env |= {"PYTHONPATH": str(_PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise KernelFailed(
            f"the grader did not end within {_SECONDS} s", request.op, "run it again on a quieter machine"
        ) from None
    if done.returncode or not answered.is_file():
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise KernelFailed(f"the grader made no verdict: {lines[-1]}", request.op, "run it again; --debug tells more")
    reply = json.loads(answered.read_text())
    if "error" in reply:
        raise BadInput(
            reply["error"], request.reference.origin, "mend the reference: without a truth nothing is graded"
        )
    return read_verdict(json.dumps(reply))
