"""The parent's side: real children, their answers, their errors and how they end."""

import subprocess
import sys

from dataclasses import replace
from pathlib import Path

import pytest

from liger_dev import analyzer
from liger_dev.analyzer import Analysis
from liger_dev.analyzer import analyze
from liger_dev.analyzer import compile_in_child
from liger_dev.analyzer import load_in_child
from liger_dev.errors import BadInput
from liger_dev.errors import LigerDevError
from liger_dev.errors import LimitReached
from liger_dev.errors import Unsupported
from liger_dev.profile import parse_profile
from liger_dev.profile import print_profile
from liger_dev.records import Reference
from liger_dev.records import digest
from liger_dev.sandbox import Limits
from liger_dev.sources import catalog_source
from liger_dev.sources import resolve


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def source(text, **options):
        (tmp_path / "user.py").write_text(text)
        return resolve("op", "user.py", shapes={}, init=[], cwd=tmp_path)

    return source


def test_reference_survives_the_way_back_and_compiles():
    reference = load_in_child("layer_norm", catalog_source("layer_norm"))
    assert reference.text == catalog_source("layer_norm").text
    assert Reference.from_json(reference.to_json()) == reference
    assert [tensor.optional for tensor in reference.tensors] == [False, True, True]
    reply = compile_in_child(reference, {})
    assert reply.profile["operation_name"] == "layer_norm" and reply.op


def test_child_finds_imports_beside_the_file(file, tmp_path):
    (tmp_path / "beside.py").write_text("import torch\n\n\ndef half(x):\n    return x / 2\n")
    reference = load_in_child("op", file("from beside import half\n\n\ndef f(x):\n    return half(x).exp()\n"))
    assert "y = torch.exp(x / 2)" in reference.text


def test_error_of_the_child_is_raised_again_as_its_class(file):
    with pytest.raises(BadInput) as caught:
        load_in_child("op", file("def f(x):\n    x.mul_(2)\n    return x\n"))
    assert caught.value.what == "the operation writes to its input 'x' in place"
    assert (type(caught.value), caught.value.where) == (BadInput, "user.py")


def test_what_the_users_code_prints_is_no_answer(file, capfd):
    reference = load_in_child("op", file("print('{}')\n\n\ndef f(x):\n    print(x.shape)\n    return x * x\n"))
    assert reference.name == "op"
    assert capfd.readouterr() == ("", "")


def test_child_that_does_not_end(file):
    source = file("import time\n\ntime.sleep(60)\n\n\ndef f(x):\n    return x\n")
    with pytest.raises(LimitReached, match="the analysis did not end within 1 seconds"):
        load_in_child("op", source, limits=Limits(seconds=1))


def test_child_that_crashes(file):
    source = file("import os\nimport signal\n\nos.kill(os.getpid(), signal.SIGSEGV)\n\n\ndef f(x):\n    return x\n")
    with pytest.raises(BadInput, match="the analysis crashed with signal 11"):
        load_in_child("op", source)


def test_child_that_is_killed_for_memory(file):
    source = file("import os\nimport signal\n\nos.kill(os.getpid(), signal.SIGKILL)\n\n\ndef f(x):\n    return x\n")
    with pytest.raises(LimitReached, match="killed: out of memory"):
        load_in_child("op", source)


def test_child_that_leaves_without_an_answer(file):
    with pytest.raises(LigerDevError, match="failed inside liger-dev") as caught:
        load_in_child("op", file("import os\n\nos._exit(0)\n\n\ndef f(x):\n    return x\n"))
    assert caught.value.todo.startswith("please report it")


def test_parent_imports_no_torch():
    script = "import sys; import liger_dev.analyzer; print('torch' in sys.modules, 'triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_analysis_of_a_catalogue_operation():
    analysis = analyze("gemma_rms_norm", catalog_source("gemma_rms_norm"))
    profile = analysis.profile
    assert profile.closest_existing_kernel == "rms_norm"
    assert profile.provenance["source"] == "catalogue: gemma_rms_norm"
    assert profile.provenance["reference_sha256"] == digest(analysis.reference.text)
    assert set(profile.provenance) == {"source", "reference_sha256", "liger_dev", "torch", "triton"}
    assert parse_profile(print_profile(profile), "profile") == profile
    assert Analysis.from_json(analysis.to_json()) == analysis


def test_assumptions_reach_the_profile_and_printed_text_is_formatted(tmp_path):
    source = resolve("gated", "silu( gate )*up**2", shapes={}, init=[], cwd=tmp_path)
    analysis = analyze("gated", source)
    assert "    y = F.silu(gate) * up**2\n" in analysis.reference.text
    assert analysis.profile.assumptions == list(analysis.reference.assumptions) != []
    assert analysis.profile.closest_existing_kernel == "none"


def test_closest_kernel_is_found_in_the_workspace(tmp_path):
    (tmp_path / "profiles").mkdir()
    text = (Path(analyzer.__file__).parent.parent / "profiles" / "rms_norm.yaml").read_text()
    (tmp_path / "profiles" / "rms_norm.yaml").write_text(text)
    source = replace(catalog_source("l2_norm"), origin="user.py")
    assert analyze("l2_norm", source, root=tmp_path).profile.closest_existing_kernel == "rms_norm"


def test_operation_that_the_compiler_lacks_names_its_line(file):
    with pytest.raises(Unsupported) as caught:
        analyze("op", file("def f(x):\n    y = x.sort(-1).values\n    return y\n"))
    assert "sort" in str(caught.value)
