"""Runs through the real command line, with small stages in place of the real ones: reviews, exit codes, signals."""

import os
import pty
import re
import signal
import subprocess
import sys

from pathlib import Path

import pytest

from small_stages import tree

from liger_dev import runs

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{HERE.parents[1]}:{HERE}", "COLUMNS": "80", "TERM": "xterm"}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "workspace"
    (folder / "kernels" / "ops").mkdir(parents=True)
    return folder


def command(*words):
    return [sys.executable, str(HERE / "small_cli.py"), *words]


def run(root, *words):
    return subprocess.run(
        command(*words),
        cwd=root,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def at_terminal(root, answers, *words, **env):
    """The exit code and all output of a command at a terminal, where `answers` are typed."""
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        command(*words), cwd=root, env={**ENVIRONMENT, **env}, stdin=its_end, stdout=its_end, stderr=its_end
    )
    os.close(its_end)
    os.write(terminal, answers.encode())
    output = b""
    while data := _read(terminal):
        output += data
    os.close(terminal)
    return process.wait(), output.decode()


def _read(terminal) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


def only_run(root):
    (found,) = runs.list_runs(root)
    return found


def test_yes_passes_and_is_said_on_the_screen_and_in_the_report(root):
    done = run(root, "new", "swiglu", "--yes")
    assert done.returncode == 0, done.stderr
    assert "analyze: approved by --yes" in done.stderr
    assert "  analyze: approved by --yes, nobody looked" in done.stderr
    assert b"generate: --yes" in tree(root)["results/SWIGLU.md"]
    assert done.stdout.count("'passed': True") == 1
    assert "\x1b" not in done.stdout + done.stderr
    again = run(root, "resume", only_run(root).id)
    assert again.returncode == 0 and again.stdout.count("'passed': True") == 1


def test_pause_show_approve_resume(root):
    done = run(root, "new", "swiglu", "--pause")
    made = only_run(root)
    assert done.returncode == 3
    assert f"liger-dev approve {made.id} --stage analyze" in done.stderr
    assert f"liger-dev resume {made.id}" in done.stderr and "# {'text': 'SWIGLU'}" in done.stdout
    assert "paused" in run(root, "runs").stdout
    assert "# {'text': 'SWIGLU'}" in run(root, "show", made.id, "--stage", "analyze").stdout
    for stage in ("analyze", "generate", "validate"):
        assert f"approved: {stage}" in run(root, "approve", made.id, "--reason", "seen").stdout
        code = run(root, "resume", made.id).returncode
        assert code == (0 if stage == "validate" else 3)
    assert "passed" in run(root, "runs").stdout
    events = run(root, "show", made.id).stdout
    assert events.count("approved") == 3 and "seen" in events


def test_reject_ends_the_run_and_takes_the_files_back(root):
    run(root, "new", "swiglu", "--yes")
    made = only_run(root)
    done = run(root, "reject", made.id, "--reason", "wrong formula")
    assert done.returncode == 0 and "3 files put back" in done.stdout
    assert tree(root) == {}
    resumed = run(root, "resume", made.id, "--yes")
    assert resumed.returncode == 2 and "wrong formula" in resumed.stderr


def test_commands_that_are_printed_outside_the_workspace_name_it(root):
    done = run(root.parent, "new", "swiglu", "--pause", "--root", "workspace")
    assert done.returncode == 3 and f"--root {root}" in done.stderr


def test_without_a_terminal_a_run_pauses_and_says_why(root):
    done = run(root, "new", "swiglu")
    assert done.returncode == 3 and "no terminal" in done.stderr


def test_a_kernel_that_fails_ends_with_1_and_shows_its_report(root):
    done = run(root, "new", "failing", "--from", "x * x", "--yes")
    assert done.returncode == 1
    assert "failed: the kernel fails" in done.stderr and "FAILING fails" in done.stdout
    assert run(root, "resume", only_run(root).id).returncode == 1


def test_a_stage_that_the_run_does_not_have(root):
    run(root, "new", "swiglu", "--pause")
    done = run(root, "resume", only_run(root).id, "--stage", "tune")
    assert done.returncode == 2 and "analyze, generate, validate" in done.stderr


def test_a_person_at_a_terminal_edits_approves_and_passes(root, tmp_path):
    (tmp_path / "editor.sh").write_text('echo -n GEGLU > "$1"\n')
    answers = "e\na looks right now\na\na\n"
    code, output = at_terminal(root, answers, "new", "swiglu", EDITOR=f"sh {tmp_path}/editor.sh", VISUAL="")
    assert code == 0, output
    assert b"analyze: review looks right now" in tree(root)["results/GEGLU.md"]
    assert "\x1b[" in output and "  analyze: approved by a person" in output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    lines = [line for line in plain.splitlines() if " > " not in line]
    assert "[a]pprove  [e]dit" in plain and max(map(len, lines)) <= 80


def test_quit_at_a_terminal_ends_with_3_and_the_run_goes_on_later(root):
    assert at_terminal(root, "a\nq\n", "new", "swiglu")[0] == 3
    assert tree(root) == {}
    assert at_terminal(root, "a\na\n", "resume", only_run(root).id)[0] == 0


def test_no_color_is_honoured(root):
    code, output = at_terminal(root, "a\na\na\n", "new", "swiglu", NO_COLOR="1")
    assert code == 0 and not re.search(r"\x1b\[([0-9]+;)*(3[0-7]|9[0-7]|38;)", output)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_is_stopped_by_a_signal_can_be_resumed(root, number, code):
    undisturbed = root.parent / "undisturbed"
    (undisturbed / "kernels" / "ops").mkdir(parents=True)
    assert run(undisturbed, "new", "swiglu", "--yes").returncode == 0
    process = subprocess.Popen(
        command("new", "swiglu", "--yes"), cwd=root, env={**ENVIRONMENT, "WAIT": "1"}, stderr=subprocess.PIPE, text=True
    )
    assert any(line == "validating\n" for line in process.stderr)
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait() == code
    process.stderr.close()
    made = only_run(root)
    if code == 130:
        assert f"interrupted; go on with: liger-dev resume {made.id}" in rest
    assert made.status().state == "interrupted"
    assert run(root, "resume", made.id).returncode == 0
    assert tree(root) == tree(undisturbed)
