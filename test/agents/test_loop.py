"""The loop and the SDK against a server that speaks the Messages API: how talks go on, and all the ways they end."""

import contextlib
import json
import time

import pytest

from messages_server import KEY
from messages_server import Failure
from messages_server import answers
from messages_server import calls
from messages_server import says
from messages_server import thinks
from talks import adder
from talks import assert_appended_only
from talks import kinds
from talks import talk

from liger_dev.agents import claude
from liger_dev.agents.claude import Claude
from liger_dev.agents.loop import Limits
from liger_dev.agents.replay import replay
from liger_dev.agents.seat import check_budget
from liger_dev.agents.transcript import Transcript
from liger_dev.agents.transcript import lines_of
from liger_dev.agents.transcript import spent
from liger_dev.errors import BadInput
from liger_dev.errors import LimitReached
from liger_dev.errors import ModelFailed

BOTH = answers(thinks(), says("adding"), calls("add", name="a", number=2), calls("add", name="b", number=3))
DONE = answers(calls("submit", total=5))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "transcripts" / "adder.jsonl"


def results(script, request=-1):
    return [(block["content"], block["is_error"]) for block in script.requests[request]["messages"][-1]["content"]]


def test_parallel_calls_are_answered_together_and_the_final_tool_ends_the_talk(serve, path):
    script = serve(BOTH, DONE)
    assert talk(path) == {"total": 5}
    assert results(script) == [("1 numbers", False), ("2 numbers", False)]
    assert kinds(path) == ["start", "task", "answer", "results", "answer", "end"]
    assert script.problems == []
    assert_appended_only(script)


def test_requests_use_caching_streaming_strict_tools_and_the_servers_clearing(serve, path):
    script = serve(BOTH, DONE)
    talk(path)
    request = script.requests[0]
    assert request["stream"] is True and request["cache_control"] == {"type": "ephemeral"}
    assert all(tool["strict"] for tool in request["tools"])
    assert request["context_management"]["edits"][0]["type"] == "clear_tool_uses_20250919"


def test_a_server_without_a_models_list_is_asked_for_nothing_special(serve, path):
    script = serve(BOTH, DONE, strict=False)
    assert talk(path) == {"total": 5}
    assert "context_management" not in script.requests[0] and "strict" not in script.requests[0]["tools"][0]


def test_an_answer_that_hands_nothing_in_is_answered_and_not_taken_for_an_end(serve, path):
    script = serve(answers(says("The sum is 5.")), answers(), BOTH, DONE)
    assert talk(path) == {"total": 5}
    assert "submit" in script.requests[1]["messages"][-1]["content"]
    assert script.problems == []


def test_a_model_that_stays_silent_ends_at_a_limit_and_can_be_asked_again(serve, path):
    script = serve(*[answers(says("The sum is 5."))] * 4, BOTH, DONE)
    with pytest.raises(LimitReached, match="hand nothing in"):
        talk(path)
    assert len(script.requests) == 4
    assert talk(path) == {"total": 5}


def test_a_cut_off_answer_runs_none_of_its_calls(serve, path):
    script = serve(answers(calls("add", name="a", number=2), stop="max_tokens"), answers(stop="max_tokens"), BOTH, DONE)
    assert talk(path) == {"total": 5}
    ((text, is_error),) = results(script, 1)
    assert is_error and "none of its calls was run" in text
    assert "cut off" in script.requests[2]["messages"][-1]["content"]
    assert results(script, 3) == [("1 numbers", False), ("2 numbers", False)]


def test_a_refusal_is_a_clear_end_and_is_not_sent_back_later(serve, path):
    refusal = answers(says("I can't"), stop="refusal", details={"type": "refusal", "explanation": "not today"})
    script = serve(refusal, BOTH, DONE)
    with pytest.raises(ModelFailed, match="refused: not today"):
        talk(path)
    assert kinds(path)[-2:] == ["answer", "stop"]
    assert talk(path) == {"total": 5}
    assert "I can't" not in json.dumps(script.requests[1])


def test_a_paused_turn_goes_on(serve, path):
    pause = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    script = serve(answers(pause, stop="pause_turn"), BOTH, DONE)
    assert talk(path) == {"total": 5}
    assert script.requests[1]["messages"][-1]["role"] == "assistant" and script.problems == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (calls("multiply", name="a", number=2), "there is no tool 'multiply'; there are add, crash, submit"),
        (calls("add", name="a", number=-1), "number: Input should be greater than or equal to 0"),
        (calls("add", nam="a"), "nam: Extra inputs are not permitted"),
        (calls("crash", name="a", number=2), "the tool failed: ZeroDivisionError: by design"),
        (calls("submit", total=7), "that is not the sum"),
    ],
)
def test_what_goes_wrong_in_a_call_goes_back_to_the_model(serve, path, call, message):
    script = serve(answers(call), BOTH, DONE)
    assert talk(path) == {"total": 5}
    ((text, is_error),) = results(script, 1)
    assert is_error and message in text


def test_a_malformed_call_is_asked_again_and_never_sent_back(serve, path):
    script = serve(answers(calls("add", name="a", number=2), bad_json=True), BOTH, DONE)
    assert talk(path) == {"total": 5}
    assert len(script.requests[1]["messages"]) == 1


@pytest.mark.parametrize("failure", [Failure(429, "rate_limit_error"), Failure(529, "overloaded_error")])
def test_a_rate_limit_and_an_overload_are_waited_for(serve, path, failure):
    script = serve(failure, failure, BOTH, failure, DONE)
    assert talk(path) == {"total": 5}
    assert script.replies == []


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (Failure(429, "rate_limit_error"), "the rate limit holds on after 4 retries"),
        (Failure(529, "overloaded_error"), "the server is overloaded"),
        (Failure(500, "api_error"), "the server failed with status 500"),
        (Failure(402, "billing_error"), "no credit"),
        (Failure(413, "request_too_large"), "too large"),
        (Failure(400, "invalid_request_error"), "does not take the request: as scripted"),
    ],
)
def test_what_does_not_pass_is_a_clear_end_with_nothing_lost(serve, path, failure, message):
    script = serve(BOTH, *[failure] * 5)
    with pytest.raises(ModelFailed, match=message):
        talk(path)
    asked = len(script.requests)
    script.replies[:] = [DONE]
    assert talk(path) == {"total": 5}
    assert len(script.requests) == asked + 1, "what was answered before the failure is not asked again"


def test_a_wrong_key_is_named_and_never_written(serve, path, monkeypatch):
    serve(BOTH)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-wrong")
    with pytest.raises(ModelFailed, match="refused the key"):
        talk(path)
    assert b"sk-ant" not in path.read_bytes()


def test_a_missing_key_and_an_unknown_model_are_named(serve, path, monkeypatch):
    serve(BOTH, models=("claude-opus-5-5", "claude-sonnet-5-5"))
    with pytest.raises(BadInput, match="no model 'claude-nine'") as caught:
        talk(path, model="claude-nine")
    assert "claude-sonnet-5-5" in caught.value.todo
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ModelFailed, match="needs a key"):
        talk(path)


def test_an_unreachable_server_is_named(serve, path, monkeypatch):
    serve(BOTH)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(claude, "RETRIES", 0)
    with pytest.raises(ModelFailed, match="can't be reached"):
        talk(path)
    assert kinds(path) == ["start", "task", "stop"]


@pytest.mark.parametrize("cut", [0, 1, 4, 8])
def test_a_connection_that_is_cut_in_an_answer_is_asked_again(serve, path, cut):
    script = serve(BOTH, answers(calls("submit", total=5), cut=min(cut, 5)), DONE)
    assert talk(path) == {"total": 5}
    assert len(script.requests) == 3 and kinds(path).count("answer") == 2
    assert_appended_only(script)


def test_a_connection_that_stays_cut_ends_and_is_resumed_where_it_was(serve, path):
    script = serve(BOTH, *[answers(calls("submit", total=5), cut=3)] * 3)
    with pytest.raises(ModelFailed, match="cut off 3 times"):
        talk(path)
    script.replies[:] = [DONE]
    assert talk(path) == {"total": 5}
    assert len(script.requests) == 5
    assert_appended_only(script)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (Limits(steps=1), "1 answers"),
        (Limits(tokens=10), "10 tokens"),
        (Limits(context=10), "a conversation of 10 tokens"),
        (Limits(seconds=0.5), "0.5 seconds"),
    ],
)
def test_limits_are_checked_before_each_call(serve, path, limits, what):
    script = serve(BOTH, DONE)
    ticks = iter([0.0, 0.1, 0.7])
    with pytest.raises(LimitReached, match=what) as caught:
        talk(path, limits=limits, clock=lambda: next(ticks))
    assert caught.value.exit_code == 4 and len(script.requests) == 1
    assert talk(path) == {"total": 5}


def test_a_budget_bounds_the_length_of_an_answer_and_then_ends_the_talk(serve, path):
    script = serve(answers(*BOTH.content, usage={"output_tokens": 1200}), DONE, counted=2000)
    # 2000 tokens in cost a cent at most; what is left then pays for 1250 tokens out.
    with pytest.raises(LimitReached, match="the budget is reached"):
        talk(path, limits=Limits(dollars=0.055), already=0.02)
    assert script.requests[0]["max_tokens"] == 1250
    assert len(script.requests) == 1
    assert 0.024 < spent(Transcript(path).events).dollars < 0.035
    assert talk(path, limits=Limits(dollars=1.0)) == {"total": 5}


def test_a_budget_for_a_model_of_unknown_price_is_refused():
    with pytest.raises(BadInput, match="price of claude-nine is not known"):
        check_budget("claude-nine", 1.0)
    with pytest.raises(BadInput, match="allows no call"):
        check_budget("claude-opus-5-5", 0.0)
    check_budget("claude-opus-4-5-20251101", 1.0)


def test_costs_are_unknown_where_the_price_is(serve, path):
    serve(BOTH, DONE, models=("claude-nine",))
    talk(path, model="claude-nine")
    assert spent(Transcript(path).events).dollars is None


def test_a_talk_that_was_killed_between_an_answer_and_its_results_runs_the_tools_again(serve, path):
    script = serve(BOTH, DONE)
    talk(path)
    lines = path.read_bytes().splitlines(keepends=True)
    for kept, torn in ((3, b""), (3, lines[3][:40]), (4, b""), (5, b"")):
        path.write_bytes(b"".join(lines[:kept]) + torn)
        script.replies[:] = [DONE]
        assert talk(path) == {"total": 5}
        assert kinds(path) == ["start", "task", "answer", "results", "answer", "end"]
        assert Transcript(path).events[:4] == [json.loads(line) for line in lines[:4]]
        assert script.problems == []


def test_a_talk_that_has_ended_is_not_held_again(serve, path):
    script = serve(BOTH, DONE)
    talk(path)
    assert talk(path) == {"total": 5} and len(script.requests) == 2


def test_recorded_talks_replay_byte_for_byte_without_a_network(serve, path, tmp_path, monkeypatch):
    limits = Limits(dollars=2.0)
    script = serve(
        answers(says("hm")), answers(calls("submit", total=4)), *[answers(calls("submit", total=5), cut=3)] * 3
    )
    with pytest.raises(ModelFailed):
        talk(path, limits=limits)
    script.replies[:] = [answers(calls("crash", name="é", number=1), stop="max_tokens"), BOTH, DONE]
    talk(path, limits=limits)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    replay(Transcript(path), adder(), Transcript(tmp_path / "copy.jsonl"), limits)
    assert (tmp_path / "copy.jsonl").read_bytes() == path.read_bytes()


def test_a_transcript_reads_as_a_talk_and_holds_no_key_and_no_time(serve, path):
    serve(BOTH, answers(calls("add", name="c", number=0)), DONE)
    talk(path)
    text = "\n".join(lines_of(Transcript(path)))
    assert "adder, model claude-opus-5-5" in text and "-> submit" in text and "[handed in]" in text and "$0.00" in text
    assert KEY not in path.read_text() and time.strftime("%Y-%m-%d") not in path.read_text()


def test_the_client_counts_tokens_as_the_server_does(serve):
    serve(counted=321)
    request = {"system": "s", "tools": [], "messages": [{"role": "user", "content": "x"}], "max_tokens": 10}
    with contextlib.closing(Claude()) as client:
        assert client.count(request) == 321
