"""Whose kernel stands: decided by figures that were recorded on a GPU, and never without figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from test_remark import analysis
from test_remark import context_in

from liger_dev.agents.contest import compare
from liger_dev.agents.contest import contest
from liger_dev.agents.engine import generate
from liger_dev.agents.transcript import read_all
from liger_dev.bench.csv import read
from liger_dev.runs import Run

# rms_norm as it was measured on an H200: the generated kernel, torch.compile's and eager PyTorch's.
RECORDED = read(Path(__file__).parent / "recorded_rms_norm.csv")


def rows(provider, *, modes=("forward", "backward", "full"), scale=1.0):
    """The provider's recorded rows as if they were a candidate's; `scale` multiplies its times."""
    found = [r for r in RECORDED if r.kernel_provider == provider and r.kernel_operation_mode in modes]
    assert found, "recorded"
    return [replace(row, kernel_provider="liger", **_scaled(row, scale)) for row in found]


def _scaled(row, scale):
    names = ("y_value_50", "y_value_20", "y_value_80") if row.metric_name == "speed" else ()
    return {name: getattr(row, name) * scale for name in names}


def decide(*measured, passes=True, device="NVIDIA H200", written="new"):
    left = list(measured)
    return contest("old", written, device, lambda text: passes, lambda text: left.pop(0))


def test_a_kernel_that_is_faster_than_what_was_recorded_takes_the_place():
    outcome = decide(rows("torch"), rows("liger"), rows("torch"))
    assert outcome.wins and "slower at 0" in outcome.reason and "NVIDIA H200" in outcome.reason
    assert "ms instead of" in outcome.reason


def test_the_same_kernel_measured_again_and_a_slower_one_do_not():
    assert not decide(rows("liger"), rows("liger"), rows("liger")).wins
    slower = decide(rows("liger"), rows("torch"), rows("liger"))
    assert not slower.wins and "faster at 0 of" in slower.reason


def test_slower_at_one_point_is_no_win():
    new = rows("liger")
    times = [row for row in new if row.metric_name == "speed"]
    worst = replace(times[0], y_value_50=9.0, y_value_20=8.9, y_value_80=9.1)
    outcome = compare(rows("torch"), [worst if row is times[0] else row for row in new])
    assert not outcome.wins and "slower at 1" in outcome.reason


def test_more_memory_is_no_win():
    new = [replace(r, y_value_50=r.y_value_50 * 4) if r.metric_name == "memory" else r for r in rows("liger")]
    outcome = compare(rows("torch"), new)
    assert not outcome.wins and "larger at" in outcome.reason


def test_a_clock_that_drifts_does_not_decide():
    assert compare(rows("liger", scale=2.0), rows("liger")).wins
    assert not decide(rows("liger", scale=2.0), rows("liger"), rows("liger")).wins


@pytest.mark.parametrize("measured", [[], rows("liger", modes=("forward",))], ids=["nothing", "other points"])
def test_what_was_not_measured_at_the_same_points_is_not_measured(measured):
    assert "was not measured at the same points" in decide(rows("torch"), measured, rows("torch")).reason


def test_only_what_passes_the_gate_is_measured_at_all():
    assert "does not pass the gate" in decide(passes=False).reason
    assert "handed it in as it was" in decide(written="old").reason


def test_without_a_gpu_speed_is_not_measured_and_no_agent_is_asked(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("liger_dev.agents.trials.device", lambda: "")
    script = serve()
    assert not decide(device="").wins and "not measured" in decide(device="").reason
    context = context_in(tmp_path, "claude")
    changes = generate(context, compiled_analysis())
    assert "was not measured, since there is no CUDA GPU here" in changes.said
    assert (
        "kernel" not in {c.path: c.content for c in changes.changes}["profiles/square.yaml"].partition("provenance")[2]
    )
    assert script.requests == [] and read_all(Run(tmp_path, context.run_id).folder) == []


SQUARE = "import torch\n\nSHAPES = {'x': ('B', 'T', 'H')}\n\n\ndef square(x: torch.Tensor) -> torch.Tensor:\n    return x * x\n"


def compiled_analysis():
    from liger_dev.analyzer import analyze
    from liger_dev.records import Source

    assert analysis().profile.provenance["compiler"], "the other one is what the compiler refuses"
    return analyze("square", Source("function", SQUARE, "square", "square.py"))
