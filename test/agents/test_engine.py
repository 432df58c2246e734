"""Who takes a stage: the builtin engine, an agent, or neither; and the two ways to modify a kernel, as stages."""

from dataclasses import asdict
from dataclasses import replace

import pytest

from messages_server import answers
from messages_server import calls
from scenarios import NAME
from scenarios import PROSE
from test_remark import analysis

from liger_dev import requests
from liger_dev import runs
from liger_dev.agents.engine import asks
from liger_dev.agents.engine import generate
from liger_dev.errors import BadInput
from liger_dev.errors import Unsupported
from liger_dev.pipeline import Context
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.records import ChangeSet
from liger_dev.records import Source
from liger_dev.stages import ANALYZE
from liger_dev.stages import MODIFY
from liger_dev.stages import stages_of

SQUARE = "import torch\n\nSHAPES = {'x': ('B', 'T', 'H')}\n\n\ndef square(x: torch.Tensor) -> torch.Tensor:\n    return x * x\n"


def context_of(root, request):
    run = runs.create_run(root, request)
    return Context(root, run.id, run.request, lambda line: None)


def test_only_claude_or_auto_with_a_key_asks(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert [asks({"engine": engine}) for engine in ("builtin", "auto", "claude")] == [False, False, True]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    assert [asks({"engine": engine}) for engine in ("builtin", "auto", "claude")] == [False, True, True]
    assert not asks({})


def test_what_only_an_agent_can_do_names_the_key_that_lacks(tmp_path, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    source = Source("prose", PROSE, "", "prose")
    request = requests.new_request("new", NAME, source, engine="auto", overwrite=False)
    context = context_of(tmp_path, request)
    with pytest.raises(BadInput, match="words and formulas take an agent") as caught:
        ANALYZE.make(context)
    assert "ANTHROPIC_API_KEY" in caught.value.todo
    with pytest.raises(Unsupported, match="can't express") as caught:
        generate(context, analysis())
    assert "ANTHROPIC_API_KEY" in caught.value.todo


def test_modify_in_words_is_a_stage_that_writes_after_its_review(serve, center):
    op = "kernels/ops/center.py"
    serve(
        answers(
            calls("edit_file", path=op, old="num_warps=4", new="num_warps=8"),
            calls("submit_change", summary="as asked", tests_added=[], no_test_reason="the schedule alone changes"),
        )
    )
    request = requests.modify_request(center, "center", "use eight warps", engine="claude", model="", max_cost=None)
    context = context_of(center, request)
    assert [stage.name for stage in stages_of(request)] == ["modify", "validate"]
    output = MODIFY.make(context)
    profile, change = ChangeSet.from_json(output).changes
    assert profile.path == "profiles/center.yaml" and change.path == op and "num_warps=8" in change.content
    about, _, diff = MODIFY.views(context, output, False)
    assert about.text == "as asked" and "-        x, y, n_rows" in diff.text
    with pytest.raises(BadInput, match="has no file"):
        requests.modify_request(center, "missing", "x")


def test_a_new_trace_keeps_names_and_benchmark_settings_that_a_person_chose(tmp_path):
    source = Source("function", SQUARE, "square", "square.py")
    first = ANALYZE.make(context_of(tmp_path, requests.new_request("new", "square", source)))
    profile = parse_profile(print_profile(analysis_profile(first)), "p")
    chosen = profile.model_copy(update={"functional_name": "liger_sq", "benchmark_x_values_suggestion": [512]})
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/square.yaml").write_text(print_profile(chosen))
    cube = replace(source, text=SQUARE.replace("x * x", "x * x * x"))
    request = requests.retrace_request(tmp_path, "square", cube, engine="builtin")
    assert [stage.name for stage in stages_of(request)] == ["analyze", "generate", "validate"]
    again = analysis_profile(ANALYZE.make(context_of(tmp_path, {**request, "source": asdict(cube)})))
    assert (again.functional_name, again.benchmark_x_values_suggestion) == ("liger_sq", [512])
    assert again.forward_computation != profile.forward_computation


def analysis_profile(output):
    from liger_dev.analyzer import Analysis

    return Analysis.from_json(output).profile
