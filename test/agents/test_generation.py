"""The generator agent's hand-in is held to what the other files import; the contest is decided by measured spread."""

from dataclasses import replace

import pytest

from messages_server import answers
from messages_server import calls
from scenarios import NAME
from scenarios import OP
from scenarios import OP_PATH
from seats import seat_in
from seats import tool_results
from test_remark import analysis

from liger_dev.agents.generation import is_faster
from liger_dev.agents.generation import write_op
from liger_dev.bench.csv import Measurement

POINT = Measurement("k", "liger", "full", "speed", "ms", "H", "hidden", 1024, 1.0, 0.9, 1.1, "{}", "GPU", "t", "0")


def other(**changes):
    return replace(POINT, **changes)


def test_a_kernel_that_lacks_a_name_or_style_is_not_taken(serve, tmp_path):
    serve(
        answers(calls("submit_kernel", summary="nothing yet")),
        answers(
            calls("write_file", path=OP_PATH, content=OP.replace("def mirror_add_backward", "def backward")),
            calls("submit_kernel", summary="a name lacks"),
        ),
        answers(
            calls("write_file", path=OP_PATH, content=OP.replace("x + mirrored", "x + mirored")),
            calls("submit_kernel", summary="a typing error"),
        ),
        answers(
            calls("write_file", path=OP_PATH, content=OP.replace("import torch\n", "import torch\nimport json\n", 1)),
            calls("submit_kernel", summary="an import too many, which ruff takes out"),
        ),
    )
    seat = seat_in(tmp_path, name=NAME)
    files = {"kernels/__init__.py": "", "benchmark/scripts/x.py": "", **FILES}
    assert write_op(analysis(), files, seat) == (OP, "an import too many, which ruff takes out")
    errors = [text for text, is_error in tool_results(seat) if is_error]
    assert "there is no file" in errors[0] and "does not define mirror_add_backward" in errors[1]
    assert "F821" in errors[2]


# What a scratch copy of a kernel has to have; none of it runs here.
FILES = {
    path: ""
    for path in (
        f"kernels/modules/{NAME}.py",
        "kernels/functional.py",
        f"kernels/reference/{NAME}.py",
        f"test/kernels/test_{NAME}.py",
        f"benchmark/scripts/benchmark_{NAME}.py",
        f"profiles/{NAME}.yaml",
    )
}
FILES["pyproject.toml"] = '[tool.ruff]\nline-length = 120\n[tool.ruff.lint]\nselect = ["E", "F"]\nignore = ["E501"]\n'


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([other(y_value_50=0.5, y_value_20=0.4, y_value_80=0.6)], True),
        ([other(y_value_50=0.95, y_value_20=0.85, y_value_80=1.0)], False),
        ([POINT], False),
        ([], False),
        ([other(x_value=2048, y_value_50=0.5, y_value_20=0.4, y_value_80=0.6)], False),
        ([other(kernel_provider="torch", y_value_80=0.1)], False),
    ],
)
def test_faster_is_what_lies_outside_the_spread(new, expected):
    assert is_faster([POINT], new) is expected


def test_slower_at_one_point_is_not_faster():
    old = [POINT, other(x_value=2048)]
    fast = other(y_value_50=0.5, y_value_20=0.4, y_value_80=0.6)
    slow = other(x_value=2048, y_value_50=2.0, y_value_20=1.9, y_value_80=2.1)
    assert not is_faster(old, [fast, slow])
    assert is_faster(old, [fast, other(x_value=2048)])
