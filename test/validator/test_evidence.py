"""Evidence bundles: what `check` says of a file, a bundle or a version that is no longer what was graded."""

import json

from pathlib import Path

import pytest

from typer.testing import CliRunner

from liger_dev import evidence
from liger_dev.cli import app
from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Mutant
from liger_dev.grading.verdict import Strength
from liger_dev.grading.verdict import Verdict

ROOT = Path(__file__).parents[2]
OP = "kernels/ops/center.py"
BUNDLE = "benchmark/results/center.evidence.json"
SAMPLES = "benchmark/data/samples/center.jsonl"
TALKS = {"001-generator.jsonl": [{"kind": "task", "message": {"role": "user", "content": "write a kernel"}}]}


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    """A workspace with an op, raw samples and the bundle of a verdict that passed."""
    for path, text in {OP: "op", SAMPLES: "{}\n", "pyproject.toml": ""}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    write(tmp_path)
    return tmp_path


def write(root: Path, *faults: Fault, **other):
    facts = {
        "sha256": evidence.digests(root, [OP], {}),
        "measured": evidence.digests(root, [SAMPLES], {}),
        "versions": {"liger-dev": evidence._installed("liger-dev"), "torch": evidence._installed("torch")},
        "talks": TALKS,
        **other,
    }
    killed = Mutant("a dropped term", 3, "a + b -> a", "killed", "test_shapes[float32]")
    text = evidence.bundle(Verdict(faults, 3, strength=Strength((killed,), 1)), facts)
    (root / BUNDLE).parent.mkdir(parents=True, exist_ok=True)
    (root / BUNDLE).write_text(text)


def test_what_is_as_graded_is_in_order(graded):
    assert evidence.check(graded, "center") == ([], [])
    assert evidence.check(graded, "not validated yet") == ([], [])


def test_a_changed_or_missing_file_makes_it_stale(graded):
    (graded / OP).write_text("another op")
    assert evidence.check(graded, "center")[0] == [f"{BUNDLE}: is stale: {OP} has changed since it was graded"]
    (graded / OP).unlink()
    assert evidence.check(graded, "center")[0] == [f"{BUNDLE}: is stale: {OP} is no longer there"]


@pytest.mark.parametrize("field, value", [("passed", True), ("sha256", {}), ("talks", {})])
def test_an_altered_bundle_is_told(graded, field, value):
    write(graded, Fault("wrong values", "base", "off by 3"))
    found = json.loads((graded / BUNDLE).read_text())
    (graded / BUNDLE).write_text(json.dumps({**found, field: value}))
    (line,), _ = evidence.check(graded, "center")
    assert "was altered" in line


@pytest.mark.parametrize("text", ["", "[]", '{"verdict": 3}'])
def test_what_is_no_bundle_is_told(graded, text):
    (graded / BUNDLE).write_text(text)
    (line,), _ = evidence.check(graded, "center")
    assert "is no evidence" in line


def test_a_verdict_that_failed_is_no_evidence_for_the_kernel(graded):
    write(graded, Fault("wrong values", "base", "off by 3"))
    (line,), _ = evidence.check(graded, "center")
    assert line.endswith("says that the kernel failed: wrong values (base): off by 3")


def test_other_versions_and_new_samples_are_worth_knowing(graded):
    write(graded, versions={"torch": "1.0", "numpy": "1.0"})
    (graded / SAMPLES).write_text("{}\n{}\n")
    wrong, notes = evidence.check(graded, "center")
    assert not wrong
    assert f"{SAMPLES} has changed since its samples were bundled" in notes[0]
    assert "was graded with torch 1.0 (here" in notes[1]
    assert "numpy" not in notes[1]


def test_a_later_validation_keeps_the_talks_of_the_same_op(graded):
    digest = evidence.digests(graded, [OP], {})[OP]
    assert evidence.talks_before(graded, "center", digest) == TALKS
    assert evidence.talks_before(graded, "center", "another op's") == {}


def test_the_command_tells_and_fails(tmp_path):
    for folder in ("profiles", "benchmark/results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "profiles/softmax.yaml").write_text((ROOT / "profiles/softmax.yaml").read_text())
    (tmp_path / "benchmark/results/softmax.evidence.json").write_text("{}")
    done = CliRunner().invoke(app, ["check", "--root", str(tmp_path)])
    assert done.exit_code == 1
    assert "softmax.evidence.json: is no evidence" in done.output
