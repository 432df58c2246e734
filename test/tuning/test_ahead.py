"""What settings take when they are really compiled for a target, without a device; and on a device, the whole tuner."""

import json
import math
import os
import subprocess
import sys

from pathlib import Path

import pytest

from compiler_cases import catalogue

from liger_dev import analyzer
from liger_dev import tuned_points
from liger_dev import workspace
from liger_dev.analyzer import CompiledReply
from liger_dev.bench import ahead
from liger_dev.bench import tuner
from liger_dev.compiler import compile_op
from liger_dev.generator import generate
from liger_dev.grading.resources import KernelResources
from liger_dev.profile import KernelProfile

NAME, KERNEL = "rms_norm", "_rms_norm_backward_kernel"
REPO = Path(__file__).parents[2]
SIZES = json.dumps({"B": 4, "T": 2048, "H": 8192})


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A whole workspace, whose op asks for settings at every launch."""
    root = tmp_path_factory.mktemp("ahead")
    reference = catalogue(NAME)
    made = compile_op(reference, {"tunable": True})
    profile = KernelProfile.model_validate({"closest_existing_kernel": "none", **made.profile})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analyzer, "compile_in_child", lambda *_: CompiledReply(profile.model_dump(mode="json"), made.op))
        workspace.apply(root, generate(reference, profile, root), "made")
    return ahead.Workplace(NAME, str(root), json.dumps(made.op["op"]["tunable"]))


@pytest.fixture(scope="module")
def compilers(workplace):
    with (made := ahead.compilers(workplace)).pool:
        yield made


def test_every_launch_is_seen_with_its_default_at_the_sizes_that_are_timed(compilers):
    forward, backward = compilers.look(SIZES, "bfloat16").result()
    assert (forward.kernel, forward.phase, forward.size) == ("_rms_norm_forward_kernel", "forward", 8192)
    assert (backward.kernel, backward.phase, backward.dtype) == (KERNEL, "backward", "bfloat16")
    assert list(backward.default) == ["BLOCK_ROWS", "NUM_STAGES", "num_warps", "per_sm"]


def test_settings_that_spill_are_dropped_by_compilation_alone(compilers):
    def asked(**settings):
        return compilers.ask(KERNEL, SIZES, "bfloat16", "sm_90", settings)

    usual = {"BLOCK_ROWS": 1, "NUM_STAGES": 1, "num_warps": 8, "per_sm": 1}
    tight = {**usual, "num_warps": 1}
    fits, spills = asked(**usual).result().spill_bytes, asked(**tight).result()
    assert fits == 0 and spills.spill_bytes > 0
    assert ahead.reason(spills, tight, asked(**usual).result()) == f"spills {spills.spill_bytes} bytes"
    assert asked(**{**usual, "per_sm": 2}) is asked(**usual), "what the grid alone sees is not compiled again"


USUAL = KernelResources(KERNEL, "backward", "sm_90", "", registers=64, shared_bytes=50_000)


@pytest.mark.parametrize(
    "row, settings, wanted",
    [
        ({}, {"num_warps": 8, "per_sm": 4}, ""),
        ({}, {"num_warps": 8, "per_sm": 8}, "8 programs of 64 registers a thread exceed a multiprocessor"),
        ({}, {"num_warps": 2, "per_sm": 8}, "8 programs of 50000 bytes of shared memory exceed a multiprocessor"),
        ({"error": "needs 300000 bytes\nof shared memory"}, {"num_warps": 8}, "needs 300000 bytes"),
        ({"spill_bytes": 8}, {"num_warps": 8}, "spills 8 bytes"),
        ({"target": "gfx942", "registers": 512}, {"num_warps": 8, "per_sm": 8}, ""),
    ],
)
def test_what_a_device_could_not_hold_is_dropped_with_the_reason(row, settings, wanted):
    assert ahead.reason(KernelResources(**{**vars(USUAL), **row}), settings, USUAL) == wanted


def test_points_are_one_a_bucket_and_pruned_for_any_target_untimed(compilers, workplace, capsys):
    request = {
        "tunable": json.loads(workplace.tunable),
        "x_name": "H",
        "x_values": [900, 1024],
        "config": {"B": 4, "T": 2048},
        "dtypes": ["float32"],
    }
    points = tuner.find_points(request, compilers)
    assert [point.name for point in points] == [
        "_rms_norm_forward_kernel, 1024 columns, float32",
        "_rms_norm_backward_kernel, 1024 columns, float32",
    ]
    tuner.prune(points[:1], compilers, "sm_80", tuner.Clock(math.inf))
    said = capsys.readouterr().out
    assert "sm_80: _rms_norm_forward_kernel, 1024 columns, float32: BLOCK_ROWS=" in said
    assert "registers, 0 bytes spilled;" in said and "settings near it would be timed" in said
    with pytest.raises(tuner.Spent):
        tuner.prune(points, compilers, "sm_80", tuner.Clock(0.0))


def run_tuner(workplace, folder, name, module="-m liger_dev.bench.tuner", **changes):
    """The child as `tune` starts it: its exit code, its points and what it said."""
    request = {
        "name": NAME,
        "root": workplace.root,
        "tunable": json.loads(workplace.tunable),
        "x_name": "H",
        "x_values": [1024],
        "config": {"B": 4, "T": 2048},
        "dtypes": ["bfloat16"],
        "budget": 120,
        "targets": [],
        "measure": True,
        "known": [],
        "unfit": [],
    }
    asked, out = folder / f"{name}.json", folder / f"{name}.jsonl"
    asked.write_text(json.dumps({**request, **changes}))
    paths = [f"{workplace.root}/benchmark/scripts", workplace.root, str(REPO)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if module.endswith(".py"):
        env["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-W", "ignore", *module.split(), str(asked), str(out)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=280)
    return done.returncode, tuned_points.read(out), done.stdout + done.stderr


def test_points_are_climbed_once_and_within_a_budget(workplace, tmp_path):
    small = {"module": str(Path(__file__).parent / "run_scripted.py"), "x_values": [64], "config": {"B": 1, "T": 4}}
    code, lines, said = run_tuner(workplace, tmp_path, "first", **small)
    assert code == 0, said
    assert [(line["phase"], line["size"], line["gpu"], line["arch"]) for line in lines] == [
        ("forward", 64, "Scripted GPU", "sm_90"),
        ("backward", 64, "Scripted GPU", "sm_90"),
    ]
    for line in lines:
        assert line["default"]["num_warps"] > line["best"]["num_warps"] == 1 and line["verdict"] == "faster"
    known = [tuned_points.key_of(line) for line in lines]
    code, others, said = run_tuner(workplace, tmp_path, "again", **small, known=known)
    assert (code, others) == (0, []) and "2 of 2 points were measured before" in said
    code, others, said = run_tuner(workplace, tmp_path, "spent", **small, budget=0)
    assert (code, others) == (4, []) and "the budget is spent" in said


@pytest.mark.slow
def test_settings_that_spoil_the_process_cost_themselves_alone(workplace, tmp_path, monkeypatch):
    monkeypatch.setenv("SPOILS", KERNEL)
    small = {"module": str(Path(__file__).parent / "run_scripted.py"), "x_values": [64], "config": {"B": 1, "T": 4}}
    code, lines, said = run_tuner(workplace, tmp_path, "spoilt", **small)
    assert code == 0, said
    forward, backward = lines
    spoils = {**backward["default"], "num_warps": 2 * backward["default"]["num_warps"]}
    assert said.count("leaves the process unfit; going on in a new process, without them") == 1
    assert "1 of 2 points were measured before" in said and forward["phase"] == "forward"
    assert [one["dropped"] for one in backward["tried"] if one["settings"] == spoils] == ["leaves the process unfit"]
    assert backward["best"]["num_warps"] == 1


@pytest.mark.gpu
def test_the_tuner_measures_and_goes_on_where_it_stopped(workplace, tmp_path):
    code, lines, said = run_tuner(workplace, tmp_path, "first")
    assert code == 0, said
    assert [line["phase"] for line in lines] == ["forward", "backward"]
    for line in lines:
        assert line["best"] == line["default"] or line["high"] < 0.98
        assert sum(bool(one["samples"]) for one in line["tried"]) > 2
    known = [tuned_points.key_of(line) for line in lines]
    code, lines, said = run_tuner(workplace, tmp_path, "again", known=known)
    assert (code, lines) == (0, []) and "2 of 2 points were measured before" in said
