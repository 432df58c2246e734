"""A remark in words at a review: it goes to the stage's agent, and comes back as a diff and an edited output."""

from dataclasses import asdict
from dataclasses import replace

from messages_server import Failure
from messages_server import answers
from messages_server import calls
from scenarios import FACTS
from scenarios import NAME
from scenarios import OP
from scenarios import OP_PATH
from scenarios import PROSE
from scenarios import REFERENCE

from liger_dev import requests
from liger_dev import runs
from liger_dev.agents.draft import KernelFacts
from liger_dev.agents.draft import draft_profile
from liger_dev.analyzer import Analysis
from liger_dev.pipeline import Context
from liger_dev.records import Reference
from liger_dev.records import Source
from liger_dev.records import Tensor
from liger_dev.review import asking
from liger_dev.screen import Screen
from liger_dev.stages import ANALYZE
from liger_dev.stages import GENERATE


def analysis():
    reference = Reference(NAME, REFERENCE, (Tensor("x", ("B", "T", "H")),), (), "prose")
    outputs = [{"name": "y", "shape": ["B", "T", "H"], "dtype": "same as x"}]
    profile = draft_profile(reference, KernelFacts.model_validate(FACTS), outputs, {"compiler": "refused: index_copy"})
    return Analysis(reference, profile)


def context_in(root, engine):
    request = requests.new_request("new", NAME, Source("prose", PROSE, "", "prose"), engine=engine, overwrite=False)
    run = runs.create_run(root, {**request, "source": asdict(Source("prose", PROSE, "", "prose"))})
    context = Context(root, run.id, run.request, lambda line: None)
    return replace(context, outputs={"analyze": analysis().to_json()})


def ask(*lines):
    left = list(lines)
    return lambda prompt: left.pop(0)


def kernel(text):
    return {
        "changes": [{"path": OP_PATH, "content": text, "base": "", "binary": False}],
    }


def test_a_remark_on_the_kernel_comes_back_as_a_diff(serve, tmp_path, capsys):
    script = serve(
        answers(
            calls("edit_file", path=OP_PATH, old="x + mirrored", new="mirrored + x"),
            calls("submit_kernel", summary="as the reviewer wants"),
        )
    )
    context = context_in(tmp_path, "claude")
    review = asking(Screen(), ask("r write the mirrored term first", "v", "a"))
    decision = review(GENERATE, context, kernel(OP))
    assert (decision.kind, decision.reason) == ("edit", "write the mirrored term first")
    texts = {change["path"]: change["content"] for change in decision.output["changes"]}
    assert "mirrored + x" in texts[OP_PATH]
    assert "def _mirror_add_kernel" in capsys.readouterr().out
    assert review(GENERATE, context, decision.output).kind == "approve"
    difference, _, whole = capsys.readouterr().out.partition("About the kernel")
    assert (
        "as the reviewer wants" in whole
        and "def _mirror_add_kernel" in whole
        and "def _mirror_add_kernel" not in difference
    )
    shown = difference
    assert "+    tl.store(y_ptr + rows * n_cols + cols, mirrored + x, mask=mask)" in shown
    assert "write the mirrored term first" in script.requests[0]["messages"][0]["content"]


def test_a_remark_without_an_agent_and_one_that_fails_leave_the_review_open(serve, tmp_path, capsys):
    serve(Failure(400, "invalid_request_error"))
    output = analysis().to_json()
    builtin = asking(Screen(), ask("r shorter", "n", "q"))(ANALYZE, context_in(tmp_path, "builtin"), output)
    failing = asking(Screen(), ask("r shorter", "n", "a"))(ANALYZE, context_in(tmp_path, "claude"), output)
    empty = asking(Screen(), ask("r", "n", "q"))(ANALYZE, context_in(tmp_path, "claude"), output)
    assert (builtin.kind, failing.kind, empty.kind) == ("pause", "approve", "pause")
    said = capsys.readouterr().err
    assert "can't act on a remark" in said and "does not take the request" in said and "say what should be" in said
