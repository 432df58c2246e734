"""The person's review with scripted answers and a real editor process."""

import io

import pytest

from small_stages import STAGES

from liger_dev.errors import BadInput
from liger_dev.pipeline import Context
from liger_dev.review import asking
from liger_dev.review import open_editor
from liger_dev.review import reviewer
from liger_dev.screen import Screen

ANALYZE, GENERATE, _ = STAGES


def decide(root, answers, stage=ANALYZE, output={"text": "RELU"}):
    left = list(answers)
    context = Context(root, "run", {"name": "relu"}, print)
    decision = asking(Screen(), lambda prompt: left.pop(0) if left else None)(stage, context, output)
    assert not left, f"these answers were not asked for: {left}"
    return decision


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Makes the editor replace a file's text by the next of the given texts."""

    def set_texts(*texts):
        for number, text in enumerate(texts):
            (tmp_path / f"text-{number}").write_text(text)
        script = tmp_path / "editor.sh"
        script.write_text(
            f'cd {tmp_path}; next=$(ls text-* | head -1); cat "$next" > "$1"; echo "$1" > edited; rm "$next"\n'
        )
        monkeypatch.setenv("EDITOR", f"sh {script}")

    monkeypatch.delenv("VISUAL", raising=False)
    return set_texts


def test_approve_takes_the_words_after_it_as_the_reason(tmp_path):
    decision = decide(tmp_path, ["a formulas checked by hand"])
    assert (decision.kind, decision.how, decision.reason) == ("approve", "review", "formulas checked by hand")


@pytest.mark.parametrize("answers", [["q"], ["quit"], []])
def test_quit_and_the_end_of_the_input_leave_the_run_waiting(tmp_path, answers):
    assert decide(tmp_path, answers).kind == "pause"


def test_an_unknown_answer_and_an_empty_line_are_asked_again(tmp_path, capsys):
    assert decide(tmp_path, ["yes please\n", "\n", "a"]).kind == "approve"
    assert capsys.readouterr().err.count("answer a, e, r, q or v") == 2


def test_a_remark_is_refused_honestly(tmp_path, capsys):
    assert decide(tmp_path, ["r make it faster", "n", "q"]).kind == "pause"
    assert "can't act on a remark" in capsys.readouterr().err


def test_a_remark_leads_to_an_edit_if_wanted(tmp_path, editor):
    editor("SILU")
    assert decide(tmp_path, ["r use silu", "y"]).output == {"text": "SILU"}


def test_an_edit_opens_the_editor_and_comes_back_checked(tmp_path, editor):
    editor("SILU")
    decision = decide(tmp_path, ["e"])
    assert (decision.kind, decision.output) == ("edit", {"text": "SILU"})
    assert (tmp_path / "edited").read_text().strip().endswith("/text.txt")


def test_an_edit_that_fails_its_check_can_be_edited_again(tmp_path, editor, capsys):
    editor("bad", "SILU")
    assert decide(tmp_path, ["e", "e"]).output == {"text": "SILU"}
    assert "the text says bad" in capsys.readouterr().err


def test_an_edit_that_fails_its_check_can_be_discarded(tmp_path, editor):
    editor("bad")
    assert decide(tmp_path, ["e", "d", "a"]).kind == "approve"


def test_an_edit_that_changes_nothing_is_none(tmp_path, editor, capsys):
    editor("RELU")
    assert decide(tmp_path, ["e", "a"]).kind == "approve"
    assert "nothing was changed" in capsys.readouterr().err


def test_a_stage_without_texts_offers_no_edit(tmp_path, capsys):
    assert decide(tmp_path, ["e", "q"], GENERATE).kind == "pause"
    assert "answer a" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "what"), [("false", "ended with code 1"), ("/no/such/editor", "can't be started")])
def test_an_editor_that_fails_is_named(monkeypatch, command, what):
    monkeypatch.setenv("VISUAL", command)
    with pytest.raises(BadInput, match=what):
        open_editor("text", "profiles/relu.yaml")


def test_without_a_terminal_the_run_pauses_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    review = reviewer("ask", Screen())
    assert review(ANALYZE, Context(tmp_path, "run", {}, print), {"text": "RELU"}).kind == "pause"
    assert "no terminal" in capsys.readouterr().err


def test_yes_approves_and_says_so(tmp_path, capsys):
    decision = reviewer("yes", Screen())(ANALYZE, Context(tmp_path, "run", {}, print), {"text": "RELU"})
    assert (decision.kind, decision.how) == ("approve", "--yes")
    captured = capsys.readouterr()
    assert "approved by --yes" in captured.err and captured.out == "== output ==\n{'text': 'RELU'}\n\n"
