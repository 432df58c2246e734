"""The generator agent's hand-in is held to what the other files import; nothing else is taken."""

from messages_server import answers
from messages_server import calls
from scenarios import NAME
from scenarios import OP
from scenarios import OP_PATH
from seats import seat_in
from seats import tool_results
from test_remark import analysis

from liger_dev.agents.generation import write_op


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
