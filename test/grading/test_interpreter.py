"""Each mend of Triton's interpreter: a kernel that is right with it and wrong, or refused, without it."""

import json
import os
import subprocess
import sys

from pathlib import Path

import pytest

pytest.importorskip("triton")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*argv, interpret="1"):
    env = {**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": f"{ROOT}:{HERE}"}
    done = subprocess.run([sys.executable, *argv], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report():
    return json.loads(run(str(HERE / "run_mend_cases.py")))


def test_every_kernel_is_right_with_the_mends(report):
    verdicts = {check: pair[0] for checks in report["results"].values() for check, pair in checks.items()}
    assert {check: verdict for check, verdict in verdicts.items() if verdict is not True} == {}


def test_each_applied_mend_is_needed(report):
    useless = [name for name in report["applied"] if all(pair[1] is True for pair in report["results"][name].values())]
    assert useless == []


def test_a_mend_that_upstream_made_is_left_out(report):
    """The kernels of a mend that was not applied are right without it."""
    for name in set(report["mends"]) - set(report["applied"]):
        assert all(pair[1] is True for pair in report["results"][name].values()), name


def test_every_mend_has_a_case(report):
    assert sorted(report["results"]) == sorted(report["mends"])


@pytest.mark.gpu
def test_a_gpu_does_what_the_mends_claim():
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("needs a CUDA device")
    verdicts = json.loads(run(str(HERE / "run_mend_cases.py"), "cuda", interpret="0"))
    assert {check: verdict for check, verdict in verdicts.items() if verdict is not True} == {}


def test_nothing_is_imported_unless_kernels_are_interpreted():
    code = (
        "import sys; import liger_dev.grading.interpreter as i; assert i.install() == (); "
        "print('triton' in sys.modules)"
    )
    assert run("-c", code, interpret="0").strip() == "False"
