"""`liger-dev new NAME --from "prose" --engine claude` against the scripted server, through real processes."""

import os
import re
import shutil
import subprocess
import sys

from pathlib import Path

import pytest

from messages_server import KEY
from messages_server import Failure
from messages_server import Script
from messages_server import answers
from messages_server import calls
from messages_server import says
from messages_server import serving
from messages_server import thinks
from scenarios import FACTS
from scenarios import NAME
from scenarios import OP_PATH
from scenarios import PROSE
from scenarios import REFERENCE
from scenarios import WRONG_OP

from liger_dev import history
from liger_dev import runs

REPO = Path(__file__).parents[2]


def liger_dev(root, *words, url="", key=KEY):
    env = {**os.environ, "PYTHONPATH": str(REPO), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key}
    command = [sys.executable, "-m", "liger_dev", *words]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


def new(root, *words, **options):
    return liger_dev(root, "new", NAME, "--from", PROSE, "--root", ".", *words, **options)


def submits():
    return answers(calls("submit_reference", text=REFERENCE, assumptions=["a row is the last axis"], facts=FACTS))


@pytest.mark.slow
def test_prose_becomes_a_kernel_through_a_limit_a_cut_and_a_repair(tmp_path):
    script = Script(
        [
            Failure(429, "rate_limit_error"),
            answers(thinks(), says("looking"), calls("search_gallery", query="row"), calls("list_files")),
            submits(),
            answers(calls("write_file", path=OP_PATH, content=WRONG_OP), calls("compile_kernels")),
            *[answers(calls("submit_kernel", summary="one pass"), cut=3)] * 3,
        ]
    )
    with serving(script) as url:
        cut = new(tmp_path, "--engine", "claude", "--yes", "--max-cost", "2", url=url)
        (run,) = runs.list_runs(tmp_path)
        assert cut.returncode == 2 and "cut off 3 times" in cut.stderr and f"resume {run.id}" in cut.stderr
        script.replies[:] = [
            answers(calls("submit_kernel", summary="one pass")),
            answers(calls("edit_file", path=OP_PATH, old="(n_cols - cols)", new="(n_cols - 1 - cols)")),
            answers(calls("submit_repair", reason="the mirrored column was off by one")),
        ]
        done = liger_dev(tmp_path, "resume", run.id[:20], "--root", ".", url=url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert script.problems == [] and script.replies == []
    report = (tmp_path / f"benchmark/results/{NAME}.md").read_text()
    assert "failed: kernel logic" in report and "the mirrored column was off by one" in report
    assert "| validator | claude-opus-5-5 | 2 |" in report and "| all |  | 6 |" in report
    assert (tmp_path / OP_PATH).read_text().count("(n_cols - 1 - cols)") == 1
    assert "a row is the last axis" in (tmp_path / f"profiles/{NAME}.yaml").read_text()
    shown = liger_dev(tmp_path, "show", run.id, "--transcript", "--root", ".")
    assert "-> submit_kernel" in shown.stdout and "[stopped] the answer was cut off" in shown.stdout
    assert "| all |" in shown.stdout and "$0." in shown.stdout
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), f"the key is in {file}"


def test_a_budget_that_is_reached_ends_with_code_4_and_more_of_it_goes_on(tmp_path):
    script = Script([answers(says("hm"), usage={"output_tokens": 4000})])
    with serving(script) as url:
        stopped = new(tmp_path, "--engine", "claude", "--pause", "--max-cost", "0.1", url=url)
        assert stopped.returncode == 4 and "the budget is reached" in stopped.stderr
        (run,) = runs.list_runs(tmp_path)
        assert run.status().state == "interrupted"
        script.replies[:] = [submits()]
        more = liger_dev(tmp_path, "resume", run.id, "--max-cost", "1", "--root", ".", url=url)
    assert more.returncode == 3, more.stdout + more.stderr
    assert len(script.requests) == 2 and "index_copy" in more.stdout
    # More of it is kept with the run: nobody has to say it again.
    assert history.limits(run.events()) == {"max_cost": 1.0}
    # The stage again, from its transcript alone: server and key are gone.
    shutil.rmtree(run.folder / "stages")
    (run.folder / "events.jsonl").unlink()
    again = liger_dev(tmp_path, "resume", run.id, "--root", ".", url="http://127.0.0.1:9", key="")
    assert (again.returncode, again.stdout) == (3, more.stdout), again.stderr


@pytest.mark.parametrize(
    ("words", "key", "message"),
    [
        (("--engine", "claude"), "", "an agent needs a key"),
        (("--engine", "builtin"), KEY, "prose and formulas need"),
        (("--engine", "auto"), "", "prose and formulas need"),
        (("--engine", "claude", "--model", "claude-nine", "--max-cost", "1"), KEY, "price of claude-nine is not known"),
    ],
)
def test_what_can_not_begin_says_so_and_leaves_no_run(tmp_path, words, key, message):
    done = new(tmp_path, *words, key=key)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert runs.list_runs(tmp_path) == []


def test_a_change_in_words_needs_an_agent_and_a_kernel(tmp_path):
    (tmp_path / "kernels/ops").mkdir(parents=True)
    assert "has no file" in liger_dev(tmp_path, "modify", NAME, "faster", "--root", ".").stderr
    assert "say either" in liger_dev(tmp_path, "modify", NAME, "--root", ".").stderr
    assert (
        "no kernel 'silu' to modify" in liger_dev(tmp_path, "modify", "silu", "--from", "silu(x)", "--root", ".").stderr
    )
    assert liger_dev(tmp_path, "show", "x", "--transcript", "--root", ".").returncode == 2


def test_words_without_a_name_against_the_server_that_is_started_by_hand(tmp_path):
    (tmp_path / "kernels/ops").mkdir(parents=True)
    command = [sys.executable, REPO / "test/agents/serve.py", "norm", "--faults", "429,ok,cut"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = re.search(r"http://[\d.:]+", server.stdout.readline())[0]
            words = "root mean square norm with a learned weight, eps 1e-6"
            done = liger_dev(tmp_path, "analyze", words, "--engine", "claude", "--pause", url=url, key="x")
        finally:
            server.terminate()
        told = server.stdout.read()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the operation is called root_mean_square_norm" in done.stderr
    assert "an answer did not arrive whole" in done.stderr
    assert "def root_mean_square_norm(x: torch.Tensor" in done.stdout and "the weight starts as ones" in done.stdout
    assert "1 messages -> status 429" in told and "check_reference, cut 3" in told
