"""The kind of a failure, from messages as torch, Triton, pytest and the generated tests word them."""

import pytest

from liger_dev import repair as moves
from liger_dev.diagnosis import kind_of
from liger_dev.diagnosis import likely_cause
from liger_dev.diagnosis import request
from liger_dev.testrun import FAILED
from liger_dev.testrun import PASSED
from liger_dev.testrun import Case

FAR = "AssertionError: gradient of x is off by 0.308 at flat index 657: -1.4 instead of -1.1 (bound 3.05e-06; eager …)"
NEAR = "AssertionError: output 0 is off by 0.31 at flat index 657: -1.4 instead of -1.1 (bound 0.168; eager is off by 0.02)"
NOT_CLOSE = """AssertionError: Tensor-likes are not close!

Mismatched elements: 3 / 15 (20.0%)
Greatest absolute difference: {worst} at index (0, 1) (up to 0.01 allowed)
Greatest relative difference: inf at index (0, 1) (up to 0.01 allowed)"""

MESSAGES = [
    (FAR, moves.LOGIC),
    (NEAR, moves.TOLERANCE),
    (NOT_CLOSE.format(worst="0.03"), moves.TOLERANCE),
    (NOT_CLOSE.format(worst="7.5"), moves.LOGIC),
    ("AssertionError: output 0 is off by nan at (3,): nan instead of 1 (bound 0.1; eager …)", moves.LOGIC),
    ("AssertionError: output 0 has dtype torch.float32, eager has torch.bfloat16", moves.DTYPE),
    ("RuntimeError: expected scalar type Float but found BFloat16", moves.DTYPE),
    ("AssertionError: output 0 has shape (3, 4), eager has (4, 3)", moves.SHAPE),
    ("ValueError: Cannot make_shape_compatible: incompatible dimensions at index 1: 4 and 8", moves.SHAPE),
    ("RuntimeError: The size of tensor a (3) must match the size of tensor b (5)", moves.SHAPE),
    ("triton.compiler.errors.CompilationError: at 3:4: name 'y' is not defined", moves.COMPILE),
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 300000", moves.COMPILE),
    ("the test process was killed by SIGSEGV", moves.CRASH),
    ("the test process ended with exit code 0 and left no result", moves.CRASH),
    ("Failed: Timeout (>300.0s) from pytest-timeout.", moves.TIMEOUT),
    ("the tests did not end within the time limit", moves.TIMEOUT),
    ("no test was collected", moves.NO_TESTS),
    ("torch._dynamo.exc.Unsupported: torch.* op returned non-Tensor, example_value type: dtype", moves.COMPILED_GRAPH),
    ("DeprecationWarning: `torch.jit.script_method` is deprecated.", moves.WARNING),
    ("NameError: name 'weight' is not defined", moves.LOGIC),
]


def _failed(message: str, id: str = "test/kernels/test_x.py::test_shapes[3-float32]") -> Case:
    return Case(id, FAILED, message, "")


@pytest.mark.parametrize(("message", "kind"), MESSAGES)
def test_kind(message: str, kind: str):
    assert kind_of([_failed(message)]) == kind


def test_the_severest_kind_counts():
    assert kind_of([_failed(NEAR), _failed(FAR)]) == moves.LOGIC
    assert kind_of([_failed(FAR), _failed("the test process was killed by SIGSEGV")]) == moves.CRASH


def test_failures_in_low_precision_alone_are_a_matter_of_dtype():
    low = _failed(FAR, "t.py::test_shapes[3-torch.bfloat16]")
    assert kind_of([low], [low, Case("t.py::test_shapes[3-torch.float32]", PASSED)]) == moves.DTYPE
    assert kind_of([low], [low, Case("t.py::test_shapes[3-torch.float16]", PASSED)]) == moves.LOGIC
    high = _failed(FAR, "t.py::test_shapes[3-torch.float32]")
    assert kind_of([low, high], [low, high, Case("t.py::test_shapes[5-torch.float32]", PASSED)]) == moves.LOGIC


def test_the_cause_names_tests_and_the_side_that_is_wrong():
    assert "backward kernel" in likely_cause(moves.LOGIC, [_failed(FAR)])
    assert "forward kernel" in likely_cause(moves.TOLERANCE, [_failed(NEAR)])
    both = likely_cause(moves.LOGIC, [_failed(NEAR), _failed(FAR)])
    assert "output 0 or gradient of x" in both
    assert "so the fault is" not in both
    assert "`test_shapes`" in both


def test_an_exception_is_not_called_a_wrong_formula():
    assert "raises an error" in likely_cause(moves.LOGIC, [_failed("NameError: name 'weight' is not defined")])


def test_every_kind_has_a_cause_and_a_request():
    for kind in moves.MOVES:
        assert likely_cause(kind, [_failed("")])
        assert request(kind)
