"""Takes the failures of an attempt, and gives their kind, the likely cause, and what is asked of a person."""

import re

from collections.abc import Sequence

from liger_dev.repair import COMPILE
from liger_dev.repair import COMPILED_GRAPH
from liger_dev.repair import CRASH
from liger_dev.repair import DTYPE
from liger_dev.repair import GRADER
from liger_dev.repair import LOGIC
from liger_dev.repair import NO_TESTS
from liger_dev.repair import SHAPE
from liger_dev.repair import TIMEOUT
from liger_dev.repair import TOLERANCE
from liger_dev.repair import WARNING
from liger_dev.testrun import PASSED
from liger_dev.testrun import Case

# Matched against an exception's own text, never against source lines of a traceback; the first row that fits counts.
_PATTERNS = (
    (COMPILED_GRAPH, r"^torch\._(?:dynamo|inductor|functorch)"),
    (WARNING, r"^(?:\w+\.)*\w*Warning: "),
    (NO_TESTS, r"^no test was collected|^every test was skipped|^tests that the file defines did not run"),
    (
        COMPILE,
        r"CompilationError|CompileTimeAssertion|OutOfResources|PassManager::run failed|ptxas|UnsupportedLanguage",
    ),
    (TIMEOUT, r"time limit|Timeout|timed out"),
    (
        CRASH,
        r"killed by|left no result|gave no result|SystemExit|invalid pointer|Segmentation fault|illegal memory access|device-side assert",
    ),
    (DTYPE, r"dtype|scalar type|got \w*(?:Half|BFloat16|Float|Double)|\w+ and \w+ have different types"),
    (SHAPE, r"\bshape|size of tensor|sizes? mismatch|broadcast|[Ii]ncompatible dim|must match|out of (?:bounds|range)"),
)
# A worst error within this multiple of what the test allows is rounding; a wrong formula misses by orders of magnitude.
_ROUNDING = 16.0
# The worst error and the bound, as torch.testing and as the generated tests word them.
_BOUNDS = (
    re.compile(r"difference: ([\d.e+-]+|inf|nan).*?up to ([\d.e+-]+) allowed", re.DOTALL),
    re.compile(r"is off by ([\d.e+-]+|inf|nan) .*?\(bound ([\d.e+-]+)"),
)
_WRONG_VALUE = re.compile(r"^(?:AssertionError: )?(output \d+|gradient of \w+)")
_LOW_PRECISION = re.compile(r"bfloat16|bf16|float16|fp16|half")
_FULL_PRECISION = re.compile(r"(?<!b)float32|fp32")

_SEVEREST_FIRST = (NO_TESTS, COMPILE, CRASH, TIMEOUT, SHAPE, DTYPE, LOGIC, TOLERANCE, COMPILED_GRAPH, WARNING)

_CAUSES = {
    NO_TESTS: (
        "the test file, and not the kernel: it holds tests that do not run here, or none",
        "restore the test file and what it imports; a skipped test proves nothing",
    ),
    LOGIC: (
        "a formula of the kernel is wrong: the errors are far larger than rounding, and neither the schedule nor the "
        "precision made a difference",
        "compare the kernel's lines with the reference and the profile's gradient formulas, starting with the first "
        "failing test",
    ),
    COMPILED_GRAPH: (
        "host code that torch.compile can't trace",
        "read the line after 'from user code' in the error, and say it in a way that torch.compile takes",
    ),
    GRADER: (
        "the kernel is wrong where its tests do not look: another layout, size, dtype or value, or a promise beyond values",
        "read what the grader found, and decide whether kernel or test lacks something; a test that shows it helps most",
    ),
    WARNING: (
        "a library warns, and pytest is set to take warnings for errors; no value is known to be wrong",
        "decide whether the warning matters here; if not, filter that one warning in the pytest settings",
    ),
    SHAPE: (
        "the kernel or its host code handles a shape wrongly: an output's shape, a stride, or the edge of a block",
        "look at how n_rows, n_cols and the masks are made for the shapes in the failing tests",
    ),
    DTYPE: (
        "a tensor has another dtype than the reference gives, or a value is computed in low precision",
        "compare the dtypes of outputs and gradients with the reference; accumulate in float32",
    ),
    TOLERANCE: (
        "rounding: the errors are near the bound, so an intermediate value is rounded where the reference does not "
        "round, or the reverse",
        "decide where the reference rounds and mirror it; the bound itself is not the kernel's to change",
    ),
    COMPILE: (
        "the kernel does not compile for a target, or takes more registers or shared memory than it has",
        "read the compiler's message below; names bound in a loop and used after it, and types that differ between "
        "two branches, run in the interpreter and fail here",
    ),
    CRASH: (
        "an access out of bounds, or code that ends the process",
        "look for loads and stores without a mask, and for offsets in 32 bits",
    ),
    TIMEOUT: (
        "a loop that does not end, or far more work than the shapes need",
        "look at the loop bounds and the grid",
    ),
}


def kind_of(failures: Sequence[Case], cases: Sequence[Case] = ()) -> str:
    """The kind of an attempt's failures; `cases` are all outcomes, to see what passed beside them."""
    kinds = {_kind(case) for case in failures}
    kind = next(kind for kind in _SEVEREST_FIRST if kind in kinds)
    return DTYPE if kind in (LOGIC, TOLERANCE) and _only_low_precision(failures, cases) else kind


def likely_cause(kind: str, failures: Sequence[Case]) -> str:
    """The cause in sentences, with the values and tests that point to it."""
    if kind == GRADER:
        return f"{_CAUSES[kind][0]}."
    tests = list(dict.fromkeys(case.id.rsplit("::", 1)[-1].split("[")[0] for case in failures))
    far = kind != LOGIC or any(bound.search(case.message) for case in failures for bound in _BOUNDS)
    cause = _CAUSES[kind][0] if far else "the op raises an error instead of computing"
    text = f"{cause}. It shows in {', '.join(f'`{test}`' for test in tests)}."
    values = [found.group(1) if (found := _WRONG_VALUE.match(case.message)) else "" for case in failures]
    if not all(values):
        return text
    place = "" if len({value.split()[0] for value in values}) > 1 else _PLACES[values[0].split()[0]]
    return f"{text} The first value that is wrong in each is {' or '.join(dict.fromkeys(values))}{place}."


_PLACES = {
    "output": ", so the fault is in the forward kernel or its host code",
    "gradient": ", while outputs are right, so the fault is in the backward kernel, its host code or what forward saves",
}


def request(kind: str) -> str:
    """What is asked of a person."""
    return _CAUSES[kind][1]


def _kind(case: Case) -> str:
    if case.id.startswith("compilation of "):
        return COMPILE
    for kind, pattern in _PATTERNS:
        if re.search(pattern, case.message):
            return kind
    found = [pair for bound in _BOUNDS for pair in bound.findall(case.message)]
    near = any(0 < float(allowed) and float(worst) <= _ROUNDING * float(allowed) for worst, allowed in found)
    return TOLERANCE if near else LOGIC


def _only_low_precision(failures: Sequence[Case], cases: Sequence[Case]) -> bool:
    low = all(_LOW_PRECISION.search(case.id) for case in failures)
    return low and any(case.outcome == PASSED and _FULL_PRECISION.search(case.id) for case in cases)
