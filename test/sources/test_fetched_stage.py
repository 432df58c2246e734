"""A fetched text runs only after a person has seen it, or with the flag that says so."""

import pytest

from liger_dev import history
from liger_dev import requests
from liger_dev import runs
from liger_dev import stages
from liger_dev.errors import Paused
from liger_dev.records import digest
from liger_dev.session import go_on
from liger_dev.sources import resolve
from liger_dev.stages.source import visible

URL = "https://files.test/square.py"
TEXT = """import pathlib

pathlib.Path({mark!r}).touch()


def square(x):
    return x * x
"""


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """A run on a fetched text that leaves a mark when it runs (where the sandbox lets it)."""
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "mark"
    text = TEXT.format(mark=str(mark))
    root = tmp_path / "workspace"
    (root / "kernels").mkdir(parents=True)
    source = resolve("square", URL, shapes={}, init=[], cwd=tmp_path, read_url=lambda _: text)

    def run(review, **options):
        return root, runs.create_run(root, requests.new_request("analyze", "square", source, review=review, **options))

    run.text = text
    return run


def analyses(run):
    return [event for event in run.events() if event.get("stage") == "analyze"]


def test_yes_does_not_run_a_fetched_text(fetched, tmp_path, capsys):
    root, run = fetched("yes")
    with pytest.raises(Paused, match="waits for the review of stage source"):
        go_on(root, run, "yes")
    shown = capsys.readouterr()
    assert "def square(x):" in shown.out and f"sha256 {digest(fetched.text)}" in shown.out
    assert "--trust-url approves it unseen" in shown.err
    assert analyses(run) == [] and not (tmp_path / "mark").exists()


def test_an_approved_text_is_analyzed_and_its_address_kept(fetched):
    root, run = fetched("yes")
    with pytest.raises(Paused):
        go_on(root, run, "yes")
    history.approve(run, "source", "read it")
    assert go_on(root, run, "yes")
    profile = (root / "profiles" / "square.yaml").read_text()
    assert f"source: {URL}" in profile and f"source_sha256: {digest(fetched.text)}" in profile


def test_the_flag_approves_in_any_mode_and_is_said(fetched, capsys):
    root, run = fetched("pause", trust_url=True)
    with pytest.raises(Paused, match="waits for the review of stage analyze"):
        go_on(root, run, "pause")
    assert "source: approved by --trust-url" in capsys.readouterr().err
    assert history.verdict(run.events(), "source", digest(run_output(run)))["how"] == "--trust-url"


def run_output(run):
    return run.load(history.latest_output(run.events(), "source")["key"])


def test_other_sources_have_no_such_stage(tmp_path):
    source = resolve("op", "x * x", shapes={}, init=[], cwd=tmp_path)
    assert [stage.name for stage in stages.stages_of(requests.new_request("analyze", "op", source))] == ["analyze"]


def test_characters_that_could_hide_text_are_spelled_out():
    assert visible("x = 1\r\n\ty\x1b[2K\r\u202e\u200b#é") == "x = 1\n\ty\\x1b[2K\\r\\u202e\\u200b#é"
