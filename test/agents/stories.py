"""A model that knows its lines: for each talk the answer that comes next, so that a run can be killed, cut and resumed.

A story maps who talks to its answers in order; what has been said already is counted in the request itself.
"""

import re

from messages_server import Failure
from messages_server import answers
from messages_server import calls
from messages_server import says
from messages_server import thinks
from scenarios import FACTS
from scenarios import OP
from scenarios import REFERENCE
from scenarios import WRONG_OP

NORM = '''"""Root mean square norm over the last axis: y = weight * x / sqrt(mean(x^2) + eps)."""

import torch

SHAPES = {"x": ("B", "T", "H"), "weight": ("H",)}
PARAMETERS = {"weight": "ones"}


def NAME(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    mean_square = x.pow(2).mean(-1, keepdim=True)
    return weight * (x * torch.rsqrt(mean_square + eps))
'''
PLUS_ONE = NORM.replace("weight * (x", "(1 + weight) * (x").replace("weight * x", "(1 + weight) * x")
NORM_ASSUMPTIONS = ["the norm goes over the last axis", "the weight starts as ones"]
# Right where the tests look, and wrong where only the grader does: rows of one element.
SLY_OP = OP.replace("    n_rows, n_cols = row_shape(x)\n", "    n_rows, n_cols = row_shape(x)\n    SLY\n")


def analyzes(text, assumptions, **options):
    return calls("submit_reference", text=text, assumptions=assumptions, **options)


def writes(text, *more):
    return calls("write_file", path="kernels/ops/NAME.py", content=text), *more


def edits(old, new):
    return calls("edit_file", path="kernels/ops/NAME.py", old=old, new=new)


HANDS_IN = calls("submit_kernel", summary="A program holds whole rows; forward and backward are one kernel.")
MIRROR = analyzes(REFERENCE.replace("mirror_add", "NAME"), ["a row is the last axis"], facts=FACTS)
NAMED_OP, NAMED_WRONG = (
    text.replace("mirror_add", "NAME").replace("LigerMirrorAdd", "LigerPASCAL") for text in (OP, WRONG_OP)
)

STORIES = {
    # Words become a reference that the compiler takes; a remark at the review adds one to the weight.
    "norm": {
        "analyzer": [
            answers(thinks(), says("I look for a norm."), calls("search_gallery", query="rms norm")),
            answers(calls("check_reference", text=NORM)),
            answers(analyzes(NORM, NORM_ASSUMPTIONS)),
        ],
        "analyzer, of a remark": [answers(analyzes(PLUS_ONE, [*NORM_ASSUMPTIONS, "the weight counts from one"]))],
        "modifier": [answers(calls("read_file", path="test/kernels/test_NAME.py")), lambda body: _modifies(body)],
        "generator, of a remark": [
            answers(edits("import triton\n", "import triton  # as the reviewer wants\n"), HANDS_IN)
        ],
    },
    # What the compiler can't express: the agent's kernel is off by one and is repaired at the second attempt.
    "mirror": {
        "analyzer": [answers(says("The compiler has no index_copy."), MIRROR)],
        "generator": [answers(*writes(NAMED_WRONG), calls("compile_kernels")), answers(HANDS_IN)],
        "generator, of a remark": [answers(edits("x + mirrored", "mirrored + x"), HANDS_IN)],
        "validator": [
            answers(
                edits("(n_cols - cols)", "(n_cols - 1 - cols)"),
                calls("submit_repair", reason="the mirrored column was off by one"),
            )
        ],
    },
    # The same kernel, never repaired.
    "stubborn": {
        "analyzer": [answers(MIRROR)],
        "generator": [answers(*writes(NAMED_WRONG), HANDS_IN)],
        "validator": [answers(edits("x + mirrored", "mirrored + x"), calls("submit_repair", reason="a guess"))],
        "validator, to the person": [
            answers(calls("submit_account", cause="the mirrored column is off by one", asked="look at line 31"))
        ],
    },
    "refusal": {"analyzer": [answers(says("No."), stop="refusal", details={"explanation": "a policy"})]},
    "silent": {"analyzer": [answers(says("The reference is clear to me."))] * 9},
}

FAULTS = {
    "429": Failure(429, "rate_limit_error", headers={"retry-after-ms": "50"}),
    "529": Failure(529, "overloaded_error", headers={"retry-after-ms": "50"}),
    "500": Failure(500, "api_error", headers={"retry-after-ms": "50"}),
    "401": Failure(401, "authentication_error", "invalid x-api-key"),
    "402": Failure(402, "billing_error", "Your credit balance is too low"),
    "400": Failure(400, "invalid_request_error", "messages: as scripted"),
    "cut": {"cut": 3},
    "truncated": {"stop": "max_tokens"},
    "malformed": {"bad_json": True},
}


def story(name, faults=()):
    """The answer to a request, as a function; the `faults` (names, or "" for none) befall the first answers in order."""
    left = list(faults)

    def answer(body):
        fault = FAULTS.get(left.pop(0), {}) if left else {}
        if isinstance(fault, Failure):
            return fault
        return _replaced(_next(STORIES[name], body), operation_of(body), fault)

    return answer


def who(body):
    """Whose talk a request is: the role, and what it is about where a role has several talks."""
    system = body["system"] if isinstance(body["system"], str) else body["system"][0]["text"]
    role = re.match(r"You are the (\w+)", system)[1]
    task = body["messages"][0]["content"]
    if "Call `submit_account`" in task:
        return f"{role}, to the person"
    return f"{role}, of a remark" if "A reviewer has looked at your last result" in task else role


def operation_of(body):
    return re.search(r"(?:operation|kernel) `(\w+)`", body["messages"][0]["content"])[1]


NEW_TEST = """

def test_equal_elements_stay_equal():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    from kernels.functional import liger_NAME

    y = liger_NAME(torch.full((2, 8), 3.0, device=device), torch.ones(8, device=device))
    torch.testing.assert_close(y, y[:1, :1].expand_as(y))
"""


def _modifies(body):
    """Edits the op file, and lets the test file that was read grow by a test."""
    (result,) = body["messages"][-1]["content"]
    text = "\n".join(result["content"].splitlines()[1:-1])
    return answers(
        edits("import triton\n", "import triton  # as the owner wants\n"),
        calls("write_file", path="test/kernels/test_NAME.py", content=f"{text}\n{NEW_TEST}"),
        calls(
            "submit_change",
            summary="The line is marked, and a test holds that equal elements stay equal.",
            tests_added=["test_equal_elements_stay_equal"],
        ),
    )


def _next(lines, body):
    said = sum(message["role"] == "assistant" for message in body["messages"])
    said -= sum("was cut off at its limit" in str(message["content"]) for message in body["messages"])
    talk = lines.get(who(body), [])
    if said < len(talk):
        return talk[said](body) if callable(talk[said]) else talk[said]
    return answers(says(f"I know no more as the {who(body)}."))


def _replaced(reply, operation, fault):
    pascal = "".join(part.capitalize() for part in operation.split("_"))

    def named(value):
        match value:
            case str():
                return value.replace("NAME", operation).replace("PASCAL", pascal)
            case dict():
                return {key: named(item) for key, item in value.items()}
            case list() | tuple():
                return type(value)(named(item) for item in value)
            case _:
                return value

    return type(reply)(**{**vars(reply), "content": named(reply.content), **fault})
