"""The grader as a gate: a kernel whose own tests pass is still rejected for what they do not look at."""

import json

from pathlib import Path

from liger_dev.validator import validate

RESULTS = "benchmark/results/center.md"
EVIDENCE = "benchmark/results/center.evidence.json"


def test_a_kernel_that_passes_weak_tests_is_rejected_with_evidence(center: Path):
    told: list[str] = []
    report = validate("center", center, say=told.append)
    assert not report.passed
    assert "grader" in told and "tests passed, and the grader found" in told[-1]
    assert any(line.startswith("least margin ") for line in told)
    assert any(line.startswith("launched in forward: ") for line in told)
    files = {change.path: change.content for change in report.changes.changes}
    assert list(files) == [RESULTS, EVIDENCE]
    assert "the tests passed, but the grader found:" in report.markdown
    # It takes every input for a contiguous one, and its gradient is a constant to autograd.
    assert "wrong values (layout transposed" in report.markdown
    assert "second derivative not refused" in report.markdown
    bundle = json.loads(files[EVIDENCE])
    assert bundle["repeat"] == "liger-dev validate center"
    assert bundle["verdict"]["seed"] > 0
    assert str(center) not in files[EVIDENCE] + report.markdown
    assert set(bundle["sha256"]) >= {"kernels/ops/center.py", "test/kernels/test_center.py", "profiles/center.yaml"}
