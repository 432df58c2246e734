"""`tune` from the workspace to the workspace, with the child on the GPU scripted: what it asks for, keeps and writes."""

import json

from functools import lru_cache
from pathlib import Path

import pytest

from compiler_cases import catalogue

from liger_dev import analyzer
from liger_dev import tuned_points
from liger_dev import tuning
from liger_dev import workspace
from liger_dev.analyzer import Analysis
from liger_dev.analyzer import CompiledReply
from liger_dev.commands.measuring import tune as tune_command
from liger_dev.compiler import compile_op
from liger_dev.errors import BadInput
from liger_dev.errors import HandEdited
from liger_dev.errors import LimitReached
from liger_dev.generator import check
from liger_dev.generator import generate
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.sandbox import Completed

NAME = "softmax"
OP, PROFILE, POINTS = f"kernels/ops/{NAME}.py", f"profiles/{NAME}.yaml", f"benchmark/data/tuning/{NAME}.jsonl"
OPTIONS = {"budget": 60.0, "archs": [], "x_values": [1024, 4096], "dtypes": [], "again": False, "kept": False}
FASTER = {"BLOCK_ROWS": 2, "num_warps": 4}


@lru_cache(maxsize=None)
def compiled(options="{}"):
    made = compile_op(catalogue(NAME), json.loads(options))
    return CompiledReply({"closest_existing_kernel": "none", **made.profile}, made.op)


def derived():
    return KernelProfile.model_validate(compiled().profile)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A workspace with one kernel, on a machine with a GPU; the compiler runs in this process."""
    monkeypatch.setattr(analyzer, "compile_in_child", lambda reference, options: compiled(json.dumps(options)))
    monkeypatch.setattr(analyzer, "analyze", lambda name, source: Analysis(catalogue(NAME), derived()))
    monkeypatch.setattr(tuning, "gpu_name", lambda: "NVIDIA H200")
    workspace.apply(tmp_path, generate(catalogue(NAME), derived(), tmp_path), "made")
    return tmp_path


class Device:
    """In place of the child: a forward kernel at each size, as a line of the script's, unless that is known."""

    def __init__(self, monkeypatch, best=FASTER, stop_after=None, returncode=0):
        self.requests, self.best, self.stop_after, self.returncode = [], best, stop_after, returncode
        monkeypatch.setattr(tuning, "run_child", self)

    def __call__(self, argv, *, scratch, limits, env, on_line):
        asked = json.loads(Path(argv[-2]).read_text())
        self.requests.append(asked)
        kernel = f"_{NAME}_forward_kernel"
        known = {tuple(key) for key in asked["known"]}
        lines = [point(kernel, asked["tunable"][kernel]["body"], size, self.best) for size in asked["x_values"]]
        for number, line in enumerate(one for one in lines if tuned_points.key_of(one) not in known):
            if number == self.stop_after:
                raise KeyboardInterrupt
            with open(argv[-1], "a") as file:
                file.write(json.dumps(line) + "\n")
            on_line(f"{kernel}, {line['size']} columns")
        return Completed(self.returncode, "", "Traceback\nRuntimeError: it broke", False, 1.0, ())


def point(kernel, body, size, best):
    default = {"BLOCK_ROWS": 1, "num_warps": 8}
    faster = best != default
    return {
        "kernel": kernel,
        "body": body,
        "dtype": "bfloat16",
        "size": size,
        "phase": "forward",
        "gpu": "NVIDIA H200",
        "arch": "sm_90",
        "versions": {"torch": "2.11.0", "triton": "3.6.0"},
        "default": default,
        "best": best,
        "timestamp": "2026-11-30 12:00:00",
        "default_ms": 0.0456,
        "ms": 0.0401 if faster else 0.0456,
        "ratio": 0.88 if faster else 1.0,
        "low": 0.87 if faster else 1.0,
        "high": 0.89 if faster else 1.0,
        "verdict": "faster" if faster else "same",
        "tried": [{"settings": best, "samples": [0.04] * 20, "dropped": ""}],
    }


def tuned(root, **options):
    """What `tune` tells, with its files in place."""
    found = tuning.tune(NAME, root, lambda text: None, {**OPTIONS, **options})
    workspace.apply(root, tuning.ChangeSet.from_json(found["changes"]), f"run{len(found['markdown'])}")
    return found


def records(root):
    return parse_profile((root / PROFILE).read_text(), PROFILE).tuning


def test_better_settings_are_in_profile_op_and_data(root, monkeypatch):
    device = Device(monkeypatch)
    found = tuned(root)
    assert (found["failure"], found["spent"]) == ("", "")
    row = "| 4096 | BLOCK_ROWS=1, num_warps=8 | 0.0456 | BLOCK_ROWS=2, num_warps=4 | 0.0401 | 0.880 (0.870 to 0.890) |"
    assert row in found["markdown"] and "NVIDIA H200, torch 2.11.0, triton 3.6.0;" in found["markdown"]
    assert [(one.above, one.up_to, one.settings) for one in records(root)] == [
        (512, 1024, FASTER),
        (2048, 4096, FASTER),
    ]
    op = (root / OP).read_text()
    assert "2048, 4096, (2, 4))," in op and "0.0401 ms at 4096, by default 0.0456" in op
    assert len(tuned_points.read(root / POINTS)) == 2
    assert check(root) == []
    (request,) = device.requests
    assert request["config"] == {"B": 4, "T": 2048} and request["dtypes"] == ["bfloat16"] and request["measure"]


def test_what_was_measured_is_not_measured_again(root, monkeypatch):
    device = Device(monkeypatch)
    tuned(root, x_values=[1024])
    op = (root / OP).read_text()
    again = tuned(root, x_values=[1024])
    assert len(device.requests[1]["known"]) == 1 and again["changes"]["changes"] == ()
    assert (root / OP).read_text() == op and "| 1024 |" in again["markdown"]
    tuned(root, x_values=[1024], again=True)
    assert device.requests[2]["known"] == []


def test_a_stop_loses_no_point_that_was_measured(root, monkeypatch):
    Device(monkeypatch, stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        tuned(root)
    assert not (root / POINTS).exists()
    device = Device(monkeypatch)
    tuned(root)
    assert len(device.requests[0]["known"]) == 1
    assert [line["size"] for line in tuned_points.read(root / POINTS)] == [1024, 4096]
    assert len(records(root)) == 2


def test_a_default_that_stays_needs_no_table(root, monkeypatch):
    before = (root / OP).read_text()
    Device(monkeypatch, best={"BLOCK_ROWS": 1, "num_warps": 8})
    assert "| 0.0456 | the default |" in tuned(root)["markdown"]
    assert records(root) == [] and (root / OP).read_text() == before
    assert len(tuned_points.read(root / POINTS)) == 2, "so that it is not measured again"


def test_a_spent_budget_keeps_what_was_measured_and_leaves_with_4(root, monkeypatch):
    Device(monkeypatch, returncode=4)
    with pytest.raises(LimitReached) as stopped:
        tune_command(NAME, budget=60, x=[1024], root=root)
    assert stopped.value.exit_code == 4 and "goes on" in stopped.value.todo
    assert len(records(root)) == 1 and check(root) == []


def test_a_tuner_that_breaks_fails_with_its_reason(root, monkeypatch):
    Device(monkeypatch, returncode=1)
    assert "RuntimeError: it broke" in tuning.tune(NAME, root, print, OPTIONS)["failure"]


def test_records_of_other_architectures_stay(root, monkeypatch):
    Device(monkeypatch)
    tuned(root)
    text = (root / PROFILE).read_text()
    (root / PROFILE).write_text(text.replace("arch: sm_90", "arch: sm_80"))
    (root / POINTS).unlink()
    workspace.apply(root, generate(catalogue(NAME), parse_profile((root / PROFILE).read_text(), ""), root), "edited")
    tuned(root)
    assert [one.arch for one in records(root)] == ["sm_80", "sm_80", "sm_90", "sm_90"]
    assert check(root) == []


def test_generating_anew_keeps_settings_and_drops_those_of_a_changed_kernel(root, monkeypatch):
    Device(monkeypatch)
    tuned(root)
    assert generate(catalogue(NAME), derived(), root).changes == (), (
        "a fresh profile takes them over, as `new` makes it"
    )
    found = generate(catalogue(NAME), derived().model_copy(update={"grid_dimensions": one_row()}), root)
    assert "_softmax_forward_kernel are left out, since the kernel" in found.said
    (profile,) = (change.content for change in found.changes if change.path == PROFILE)
    assert parse_profile(profile, "").tuning == []


def one_row():
    return {**derived().grid_dimensions, "forward": "(n_rows,)"}


def test_without_a_gpu_there_is_one_clear_error(root, monkeypatch):
    monkeypatch.setattr(tuning, "gpu_name", lambda: "")
    with pytest.raises(BadInput) as refused:
        tuning.tune(NAME, root, print, OPTIONS)
    assert refused.value.exit_code == 2 and "--arch sm_90" in refused.value.todo


def test_what_was_measured_elsewhere_is_written_without_a_gpu(root, monkeypatch):
    with pytest.raises(BadInput, match="no settings of 'softmax' were measured before"):
        tuned(root, kept=True)
    before = (root / OP).read_text()
    Device(monkeypatch)
    tuned(root)
    op = (root / OP).read_text()
    (root / OP).write_text(before)
    (root / PROFILE).unlink()
    workspace.apply(root, generate(catalogue(NAME), derived(), root), "plain")
    assert records(root) == []
    monkeypatch.setattr(tuning, "gpu_name", lambda: "")
    device = Device(monkeypatch)
    tuned(root, kept=True)
    assert device.requests == [] and (root / OP).read_text() == op and check(root) == []


def test_files_that_it_may_not_replace_are_refused_before_anything_is_measured(root, monkeypatch):
    device = Device(monkeypatch)
    edited = root / f"test/kernels/test_{NAME}.py"
    edited.write_text(edited.read_text() + "\n# a note\n")
    with pytest.raises(HandEdited):
        tuning.tune(NAME, root, print, OPTIONS)
    assert device.requests == []


def test_helpers_of_an_older_version_are_refused(root, monkeypatch):
    device = Device(monkeypatch)
    helpers = root / "kernels/ops/utils.py"
    helpers.write_text(helpers.read_text().replace("def tuned(", "def tuned_before("))
    with pytest.raises(BadInput) as refused:
        tuning.tune(NAME, root, print, OPTIONS)
    assert "init --overwrite" in refused.value.todo and device.requests == []


def test_an_unknown_target_is_refused(root):
    with pytest.raises(BadInput, match="'sm_1' is no target"):
        tune_command(NAME, arch=["sm_1"], root=root)
