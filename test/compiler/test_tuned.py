"""Measured settings in an op file: what the table and its lookup look like, and that launches take what it says."""

import json
import os
import subprocess
import sys

from functools import lru_cache
from pathlib import Path

import pytest

from compiler_cases import catalogue

from liger_dev.compiler import compile_op
from liger_dev.generator import OP
from liger_dev.grading.static_reading import read_text
from liger_dev.profile import KernelProfile
from liger_dev.render import render_all
from liger_dev.template_values import values

REPO = Path(__file__).parents[2]
OPS = ("rms_norm", "softmax", "swiglu", "cross_entropy")


@lru_cache(maxsize=None)
def compiled(name, options="{}"):
    return compile_op(catalogue(name), json.loads(options))


def text_of(name, **options):
    made = compiled(name, json.dumps(options))
    profile = KernelProfile.model_validate({"closest_existing_kernel": "none", **made.profile})
    (text,) = render_all([OP], {**values(catalogue(name), profile), **made.op}).values()
    return text


def record(name, kernel, above, up_to, settings, **more):
    return {
        "kernel": kernel,
        "body": compiled(name).op["op"]["tunable"][kernel]["body"],
        "arch": "sm_90",
        "dtype": "bfloat16",
        "above": above,
        "up_to": up_to,
        "settings": settings,
        "gpu": "NVIDIA H200",
        "date": "2026-11-30",
        "versions": {"torch": "2.11.0", "triton": "3.6.0"},
        "timings": [{"size": up_to, "ms": 0.0401, "default_ms": 0.0456}],
        **more,
    }


def test_a_table_reads_as_a_person_would_write_it():
    kernel, settings = "_softmax_forward_kernel", {"BLOCK_ROWS": 2, "num_warps": 8}
    records = [
        record("softmax", kernel, 2048, 4096, settings),
        record("softmax", kernel, 512, 1024, {**settings, "BLOCK_ROWS": 4}),
        record("softmax", kernel, 2048, 4096, settings, arch="gfx942", gpu="AMD MI300X", dtype="float32"),
    ]
    text = text_of("softmax", tuning=records)
    table = text[text.index("# Settings of") : text.index("\n\n\n@triton.jit")]
    assert table == (
        "# Settings of _softmax_forward_kernel that `liger-dev tune` has measured to be faster than the default ones:\n"
        "# architecture, dtype, columns above, up to, (BLOCK_ROWS, num_warps).\n"
        "SOFTMAX_FORWARD_TUNED = (\n"
        "    # AMD MI300X, 2026-11-30, torch 2.11.0, triton 3.6.0:\n"
        "    # 0.0401 ms at 4096, by default 0.0456\n"
        '    ("gfx942", torch.float32, 2048, 4096, (2, 8)),\n'
        "    # NVIDIA H200, 2026-11-30, torch 2.11.0, triton 3.6.0:\n"
        "    # 0.0401 ms at 1024, by default 0.0456\n"
        '    ("sm_90", torch.bfloat16, 512, 1024, (4, 8)),\n'
        "    # 0.0401 ms at 4096, by default 0.0456\n"
        '    ("sm_90", torch.bfloat16, 2048, 4096, (2, 8)),\n'
        ")"
    )
    assert read_text(text, OP) == (), "the grader lets it stand"
    assert text.count("tuned(") == 1, "only the kernel that was measured asks"
    assert "BLOCK_ROWS, num_warps = tuned(SOFTMAX_FORWARD_TUNED, x, n_cols, (BLOCK_ROWS, num_warps))" in text


def test_an_op_without_measured_settings_has_neither_table_nor_lookup():
    assert "tuned" not in text_of("rms_norm").lower()


@pytest.mark.parametrize(
    "change", [{"body": "00000000"}, {"settings": {"num_warps": 8}}, {"kernel": "_softmax_sideways_kernel"}]
)
def test_settings_of_another_kernel_are_not_looked_up(change):
    made = record("softmax", "_softmax_forward_kernel", 2048, 4096, {"BLOCK_ROWS": 2, "num_warps": 8})
    assert text_of("softmax", tuning=[{**made, **change}]) == text_of("softmax")


def test_what_the_profile_fixes_is_no_knob():
    def knobs(**options):
        return compiled("rms_norm", json.dumps(options)).op["op"]["tunable"]["_rms_norm_backward_kernel"]["knobs"]

    assert knobs() == ("BLOCK_ROWS", "NUM_STAGES", "num_warps", "per_sm")
    assert knobs(one_row=["backward"], programs_per_sm=2) == ("NUM_STAGES", "num_warps")


@pytest.mark.parametrize(
    "name, kernel, wanted",
    [
        ("softmax", "_softmax_backward_kernel", ("BLOCK_ROWS", "num_warps")),
        ("swiglu", "_swiglu_forward_kernel", ("block_size", "num_warps")),
        ("cross_entropy", "_cross_entropy_kernel", ("BLOCK_ROWS", "BLOCK_COLS", "num_warps")),
        ("dyt", "_dyt_backward_kernel", ("BLOCK_ROWS", "BLOCK_COLS", "NUM_STAGES", "num_warps", "per_sm")),
    ],
)
def test_knobs_are_what_the_schedule_leaves_open(name, kernel, wanted):
    assert compiled(name).op["op"]["tunable"][kernel]["knobs"] == wanted


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What launches took with and without a table, in the interpreter: for a length and dtype that the table has."""
    root = tmp_path_factory.mktemp("tuned")
    texts = {f"kernels/ops/{name}.py": text_of(name, tunable=True) for name in OPS}
    packages = {"kernels/__init__.py": "", "kernels/ops/__init__.py": ""}
    for path, text in {**packages, **texts, **render_all(["kernels/ops/utils.py.jinja"], {})}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    tunable = {name: compiled(name, '{"tunable": true}').op["op"]["tunable"] for name in OPS}
    (root / "tunable.json").write_text(json.dumps(tunable))
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "run_tuned.py"), root, root / "told.json"]
    env = {**os.environ, "PYTHONPATH": str(REPO), "TRITON_INTERPRET": "1"}
    subprocess.run([str(word) for word in command], check=True, env=env, timeout=200)
    return json.loads((root / "told.json").read_text())


@pytest.mark.parametrize("name", OPS)
def test_results_do_not_depend_on_the_table(told, name):
    assert told[name]["apart"] < 1e-5


def test_launches_take_what_the_table_has(told):
    before, after = (told["rms_norm"][key] for key in ("before", "after"))
    assert before["_rms_norm_forward_kernel"]["BLOCK_ROWS"] == 16
    assert after["_rms_norm_forward_kernel"] == {
        "grid": 3,
        "BLOCK_ROWS": 2,
        "BLOCK_COLS": 64,
        "num_warps": 2,
    }
    backward = after["_rms_norm_backward_kernel"]
    assert (backward["BLOCK_ROWS"], backward["NUM_STAGES"], backward["num_warps"]) == (2, 2, 2)
    assert backward["grid"] == 3, "3 programs for a multiprocessor, of which a CPU has one"
    loss = told["cross_entropy"]
    assert loss["before"]["_cross_entropy_kernel"]["BLOCK_COLS"] == 64
    assert loss["after"]["_cross_entropy_kernel"] == {"grid": 3, "BLOCK_ROWS": 2, "BLOCK_COLS": 16, "num_warps": 2} | {
        name: value
        for name, value in loss["before"]["_cross_entropy_kernel"].items()
        if name.startswith(("HAS", "NEEDS"))
    }
    assert told["swiglu"]["before"]["_swiglu_forward_kernel"] == {"grid": 1, "BLOCK_SIZE": 1024, "num_warps": 4}
    assert told["swiglu"]["after"]["_swiglu_forward_kernel"] == {"grid": 4, "BLOCK_SIZE": 64, "num_warps": 2}
