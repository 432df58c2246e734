"""The real pipeline through the real command line: from an empty folder to Results, undisturbed and killed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

from pathlib import Path

import pytest

from small_stages import tree

from liger_dev import runs

REPO = Path(__file__).parents[2]
KERNEL = "relu_squared"
KILLS = 7


def _command(*words):
    return [sys.executable, "-m", "liger_dev", *words]


def _run(root, *words):
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run(_command(*words), cwd=root, env=env, capture_output=True, text=True, check=False)


def _kill_after(root, seconds, *words) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    process = subprocess.Popen(
        _command(*words), cwd=root, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    root = tmp_path_factory.mktemp("undisturbed")
    start = time.perf_counter()
    done = _run(root, "new", KERNEL, "--yes", "--root", ".")
    return root, done, time.perf_counter() - start


@pytest.mark.slow
def test_new_passes_from_an_empty_folder(undisturbed):
    root, done, _ = undisturbed
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Results: relu_squared" in done.stdout and "nobody looked at it" in done.stdout
    assert f"kernels/ops/{KERNEL}.py" in tree(root)
    assert tree(root)[f"benchmark/results/{KERNEL}.md"].decode().rstrip() in done.stdout
    assert _run(root, "check").returncode == 0, _run(root, "check").stdout


@pytest.fixture(scope="module")
def states(undisturbed):
    """The workspace before and after each stage that writes: nothing, the generator's files, the report too."""
    final = tree(undisturbed[0])
    return [{}, {path: data for path, data in final.items() if not path.startswith("benchmark/results/")}, final]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_at_random_moments_change_neither_files_nor_report(undisturbed, states, tmp_path):
    """After each kill the next command finds all of a change set or none of it, and moves only forward."""
    seconds = undisturbed[2]
    moments = random.Random(os.environ.get("LIGER_DEV_TEST_SEED", "0"))
    _kill_after(tmp_path, moments.uniform(0.2, 0.4) * seconds, "new", KERNEL, "--yes", "--root", ".")
    (made,) = runs.list_runs(tmp_path)
    reached = 0
    for _ in range(KILLS - 1):
        _kill_after(tmp_path, moments.uniform(0.0, 0.4) * seconds, "resume", made.id, "--root", ".")
        recovered = _run(tmp_path, "runs", "--root", ".")
        assert recovered.returncode == 0, recovered.stdout + recovered.stderr
        held = tree(tmp_path)
        assert held in states, f"neither old nor new: {sorted(held)}"
        assert states.index(held) >= reached
        reached = states.index(held)
    done = _run(tmp_path, "resume", made.id, "--root", ".")
    assert done.returncode == 0, done.stdout + done.stderr
    assert tree(tmp_path) == states[-1]
    assert len(states[1]) > 10


@pytest.mark.slow
def test_a_planted_bug_ends_at_the_third_attempt_without_a_benchmark(undisturbed, tmp_path):
    root = shutil.copytree(undisturbed[0], tmp_path / "workspace", ignore=shutil.ignore_patterns(".liger-dev"))
    op = root / "kernels" / "ops" / f"{KERNEL}.py"
    assert "dx = 2.0 * dy * positive" in op.read_text()
    op.write_text(op.read_text().replace("dx = 2.0 * dy * positive", "dx = 2.0 * dy * positive + 0.01"))
    planted = op.read_text()
    done = _run(root, "validate", KERNEL, "--root", ".")
    assert done.returncode == 1, done.stdout + done.stderr
    report = (root / "benchmark" / "results" / f"{KERNEL}.md").read_text()
    for text in ("did not pass in 3 attempts", "gradient of x is off by", "Speed and memory were not measured"):
        assert text in report, report
    assert op.read_text() == planted
    assert not (root / "benchmark" / "data").exists()
