"""The benchmark script that the template renders: formatted as it is, readable, and it runs."""

import os
import shutil
import subprocess
import sys

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from jinja2 import Environment
from jinja2 import FileSystemLoader
from jinja2 import StrictUndefined

from liger_dev.analyzer import _providers
from liger_dev.profile import KernelProfile
from liger_dev.profile import parse_profile
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.sources import catalog_source

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "benchmark/scripts/benchmark_{{ operation_name }}.py.jinja"
TEXT = (ROOT / "kernels/reference/rms_norm.py").read_text()
REFERENCE = Reference(
    "rms_norm",
    TEXT,
    (Tensor("x", ("B", "T", "H")), Tensor("weight", ("H",), init="ones")),
    (Scalar("eps", "float", 1e-6), Scalar("offset", "float", 0.0)),
    "catalogue",
)


def _profile(**changes) -> KernelProfile:
    data = yaml.safe_load((ROOT / "profiles/rms_norm.yaml").read_text())
    return parse_profile(yaml.safe_dump({**data, **changes}), "profiles/rms_norm.yaml")


def _render(profile: KernelProfile, reference: Reference = REFERENCE) -> str:
    environment = Environment(
        loader=FileSystemLoader(ROOT / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE).render(profile=profile, reference=reference)


def _ruff(text: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "ruff", *arguments, "--config", str(ROOT / "pyproject.toml")]
    command += ["--stdin-filename", str(ROOT / "benchmark/scripts/benchmark_probe.py"), "-"]
    return subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True)


def test_the_script_of_rms_norm_needs_no_formatting():
    text = _render(_profile())
    assert _ruff(text, "format").stdout == text
    checked = _ruff(text, "check")
    assert checked.returncode == 0, checked.stdout
    assert "def make_inputs(B, T, H, dtype, device):" in text
    assert "weight = torch.randn(H, dtype=dtype, device=device, requires_grad=True)" in text
    assert 'config={"B": 4, "T": 2048, "dtype": "bfloat16"},' in text
    assert "import rms_norm\n" in text and "eps" not in text


def test_edited_benchmark_fields_are_honoured():
    text = _render(
        _profile(
            benchmark_variable="T",
            benchmark_x_label="sequence length",
            benchmark_x_values_suggestion=[512],
            benchmark_providers=["torch", "liger"],
            benchmark_fixed_config={"B": 1, "H": 4096, "offset": 1.0, "dtype": "float16"},
            gradient_formulas={"x": "dx = dy"},
        )
    )
    assert _ruff(text, "check").returncode == 0 and _ruff(text, "format").stdout == text
    assert "def make_inputs(B, H, offset, T, dtype, device):" in text
    assert "return x, weight, 1e-06, offset" in text
    assert "weight = torch.randn(H, dtype=dtype, device=device)\n" in text
    assert 'x_label="sequence length"' in text and "x_values=(512,)," in text
    assert "torch_compile" not in text


def test_liger_kernel_s_own_op_is_a_provider_where_the_profile_names_it():
    text = _render(_profile(benchmark_providers=["liger", "torch", "liger_kernel"]))
    assert _ruff(text, "check").returncode == 0 and _ruff(text, "format").stdout == text
    assert "from liger_dev.bench.peers import liger_kernel_op\n" in text
    assert '        "liger_kernel": liger_kernel_op("rms_norm"),\n' in text


def test_only_the_catalogue_s_own_operation_is_measured_against_liger_kernel():
    facts = {"benchmark_providers": ["liger", "torch"]}
    catalogued = catalog_source("rms_norm")
    assert _providers("rms_norm", catalogued, facts) == ["liger", "torch", "liger_kernel"]
    assert _providers("l2_norm", catalog_source("l2_norm"), facts) == ["liger", "torch"]
    own = replace(catalogued, origin="rms_norm.py")
    assert _providers("rms_norm", own, facts) == _providers("my_norm", catalogued, facts) == ["liger", "torch"]


def test_integer_boolean_and_single_inputs_and_a_required_scalar():
    inputs = [
        {"name": "logits", "shape": ["N", "V"], "dtype": "float"},
        {"name": "target", "shape": ["N"], "dtype": "int"},
        {"name": "mask", "shape": ["N"], "dtype": "bool"},
        {"name": "scale", "shape": [], "dtype": "float"},
    ]
    profile = _profile(
        forward_inputs=inputs,
        gradient_formulas={"logits": "d"},
        benchmark_variable="V",
        benchmark_fixed_config={"N": 8, "power": 2},
    )
    reference = Reference("rms_norm", TEXT, REFERENCE.tensors, (Scalar("power", "int"),), "")
    text = _render(profile, reference)
    assert _ruff(text, "check").returncode == 0 and _ruff(text, "format").stdout == text
    names: dict = {}
    body = text[text.index("def make_inputs") : text.index("SPEC =")]
    exec("import torch\n" + body, names)
    torch = names["torch"]
    logits, target, mask, scale, power = names["make_inputs"](4, 2, 16, torch.float16, "cpu")
    assert logits.shape == (4, 16) and logits.requires_grad and logits.dtype == torch.float16
    assert target.shape == mask.shape == (4,) and mask.dtype == torch.bool and 0 <= target.min() <= target.max() < 16
    assert scale.shape == () and not scale.requires_grad and power == 2
    single = _render(_profile(forward_inputs=[{"name": "x", "shape": ["B", "H"], "dtype": "float"}]))
    assert "    return (x,)\n" in single and _ruff(single, "format").stdout == single


def _workspace(folder: Path) -> Path:
    for path in ("kernels/ops", "kernels/reference"):
        shutil.copytree(ROOT / path, folder / path, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "kernels/__init__.py").write_text("")
    (folder / "kernels/functional.py").write_text(
        "from kernels.ops.rms_norm import LigerRmsNormFunction\n\n\n"
        "def liger_rms_norm(x, weight, eps=1e-6, offset=0.0):\n"
        "    return LigerRmsNormFunction.apply(x, weight, eps, offset)\n"
    )
    script = folder / "benchmark/scripts/benchmark_rms_norm.py"
    script.parent.mkdir(parents=True)
    script.write_text(_render(_profile(benchmark_x_values_suggestion=[1024, 4096])))
    return script


def _run(script: Path, folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_the_script_runs_from_anywhere_and_says_that_it_needs_a_device(tmp_path):
    script = _workspace(tmp_path / "root")
    done = _run(script, tmp_path, {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2, done.stderr
    assert done.stderr == "Benchmarks need a CUDA device and none is visible: nothing was measured.\n"
    assert done.stdout == "" and not (tmp_path / "root/benchmark/data").exists()


@pytest.mark.gpu
def test_the_script_measures_and_its_rows_can_be_drawn(tmp_path):
    from liger_dev.bench.csv import read
    from liger_dev.bench.plots import plot

    script = _workspace(tmp_path)
    done = _run(script, tmp_path, {}, "--modes", "forward", "backward")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read(tmp_path / "benchmark/data/all_benchmark_data.csv")
    assert {row.kernel_provider for row in rows} == {"liger", "torch", "torch_compile"}
    assert {row.x_value for row in rows} == {1024, 4096}
    assert len(plot(rows, tmp_path / "plots")) == 8
