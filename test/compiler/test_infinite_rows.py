"""Logarithms of sums of exponentials over rows that hold NaNs and infinities: outputs and gradients are eager's."""

import os
import subprocess
import sys

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from compiler_cases import written
from run_long_rows import results

from liger_dev.compiler import compile_op
from liger_dev.generator import OP
from liger_dev.profile import KernelProfile
from liger_dev.render import render
from liger_dev.template_values import values

REPO = Path(__file__).parents[2]
INF, NAN = float("inf"), float("nan")
N_COLS = 37
# What a row holds from a column on, up to another one; the rest are numbers.
ROWS = {
    "numbers": (),
    "all -inf": ((0, 37, -INF),),
    "all inf": ((0, 37, INF),),
    "all NaN": ((0, 37, NAN),),
    "one inf": ((5, 6, INF),),
    "a late inf above small numbers": ((0, 37, -200.0), (30, 31, INF)),
    "one inf beside -inf": ((0, 37, -INF), (20, 21, INF)),
    "a block of -inf": ((0, 16, -INF),),
    "one NaN": ((36, 37, NAN),),
    "a block of NaN": ((0, 8, NAN),),
    "NaN beside -inf": ((0, 37, -INF), (3, 4, NAN)),
    "inf, then NaN": ((0, 1, INF), (35, 36, NAN)),
    "NaN, then inf": ((1, 2, NAN), (33, 34, INF)),
}
CASES = {
    "alone": "return torch.logsumexp(x, -1)",
    "scaled": "return 0.7 * torch.logsumexp(x / 0.7, -1)",
    "taken_off": "shares = x - torch.logsumexp(x, -1, keepdim=True)\nreturn shares, shares.exp()",
    "twice": "shares = x - torch.logsumexp(x, -1, keepdim=True)\nreturn torch.logsumexp(shares * 0.5, -1)",
    "of_log_softmax": "return torch.logsumexp(torch.log_softmax(x, -1) + 0.5 * x, -1)",
    "of_columns": "return torch.logsumexp(x.transpose(0, 1), 0)",
    "beside_softmax": "return torch.logsumexp(x, -1), torch.softmax(x, -1)",
    "beside_log_softmax": "return torch.log_softmax(x, -1), torch.logsumexp(x, -1)",
    "of_entropy": "return torch.logsumexp(x, -1) - (torch.softmax(x, -1) * x).sum(-1)",
    "with_a_number": "return torch.logaddexp(torch.logsumexp(x, -1), torch.zeros_like(x[:, 0]) - 150.0)",
    "by_hand": """
largest = x.amax(-1, keepdim=True)
largest = torch.where(torch.isinf(largest), 0.0, largest)
return (largest + torch.log(torch.exp(x - largest).sum(-1, keepdim=True))).squeeze(-1)
""",
}
# The same of rows and a number beside each of them, which is all that is left where the row is -inf.
JOINED = {
    "joined": "return torch.logsumexp(torch.cat((x, sink[:, None]), -1), -1)",
    "joined_softmax": "return torch.softmax(torch.cat((x, sink[:, None]), -1), -1)[:, :-1]",
    "joined_log_softmax": "return torch.log_softmax(torch.cat((x, sink[:, None]), -1), -1)[:, :-1]",
    "shares_of_joined": "return (x - torch.logsumexp(torch.cat((x, sink[:, None]), -1), -1, keepdim=True)).exp()",
}
SINKS = {"numbers": INF, "one NaN": -INF, "a block of -inf": -INF, "all inf": 3.0}


def rows():
    x = 3 * torch.randn(len(ROWS), N_COLS, generator=torch.Generator().manual_seed(3))
    for row, changes in zip(x, ROWS.values(), strict=True):
        for start, stop, number in changes:
            row[start:stop] = number
    return x


def inputs(name):
    return [rows(), torch.tensor([SINKS.get(row, -150.0) for row in ROWS])] if name in JOINED else [rows()]


def eager(name):
    body = "\n".join(f"    {line}" for line in {**CASES, **JOINED}[name].strip().splitlines())
    scope = {"torch": torch, "F": F}
    exec(f"def op(x, sink=None):\n{body}", scope)
    return scope["op"]


def upstreams(name):
    generator = torch.Generator().manual_seed(5)
    ys = eager(name)(*inputs(name))
    return [torch.randn(y.shape, generator=generator) for y in (ys if isinstance(ys, tuple) else (ys,))]


@pytest.fixture(scope="module")
def in_triton(tmp_path_factory):
    """What the kernels of all cases computed in the interpreter, in one child."""
    folder = tmp_path_factory.mktemp("infinite_rows")
    given = {}
    for name, body in {**CASES, **JOINED}.items():
        signature, shapes = "x: torch.Tensor", {"x": ("B", "V")}
        if name in JOINED:
            signature, shapes = f"{signature}, sink: torch.Tensor", {**shapes, "sink": ("B",)}
        made = compile_op(written(signature, body, **shapes), {})
        profile = KernelProfile.model_validate({"closest_existing_kernel": "none", **made.profile})
        named = {**values(made.reference, profile), **made.op}
        (folder / f"{name}.py").write_text(render(OP, named))
        given[name] = (named["function_class_name"], inputs(name), upstreams(name))
    torch.save(given, folder / "given.pt")
    path = os.pathsep.join([str(REPO), str(Path(__file__).parent)])
    env = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "run_long_rows.py"), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "found.pt")


@pytest.mark.parametrize("long_rows", [False, True], ids=["whole", "looped"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*CASES, *JOINED])
def test_rows_with_infinities_are_eagers(name, dtype, long_rows, in_triton):
    wanted = results(eager(name), [x.to(dtype) for x in inputs(name)], upstreams(name))
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    for one, other in zip(in_triton[name, dtype, long_rows], wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_a_softmax_beside_it_takes_the_same_exponentials():
    """A cross entropy with a penalty on its normaliser: what it is where a logit is infinite is told a row."""
    body = "return torch.nn.functional.cross_entropy(x, target, reduction='none') + torch.logsumexp(x, -1).square()"
    before = 'DTYPES = {"target": "int"}\n\n\n'
    made = compile_op(written("x: torch.Tensor, target: torch.Tensor", body, before, x=("N", "V"), target=("N",)), {})
    whole, looped, *_ = ("\n".join(kernel["lines"]) for kernel in made.op["op"]["kernels"])
    assert whole.count("exp_or_zero(") == 1 and looped.count("tl.sum(exp_or_zero(") == 1
    assert 'tl.where(row_max == float("inf"), float("nan"), denominator)' in whole and whole.count("tl.max(") == 1
