"""The generator's files: complete, in order, formatted, edited in place, and never over a hand edit untold."""

import ast
import json
import subprocess
import sys

from dataclasses import replace

import pytest

from kernel_cases import NAMES
from kernel_cases import ROOT
from kernel_cases import load

from liger_dev import analyzer
from liger_dev import edits
from liger_dev import generator
from liger_dev import workspace
from liger_dev.errors import HandEdited
from liger_dev.errors import StaleWorkspace
from liger_dev.generator import TEMPLATES
from liger_dev.generator import check
from liger_dev.generator import generate
from liger_dev.generator import kernel_files
from liger_dev.records import ChangeSet
from liger_dev.records import Tensor
from liger_dev.records import digest
from liger_dev.render import render
from liger_dev.render import template_text
from liger_dev.skeleton import FILES
from liger_dev.skeleton import skeleton
from liger_dev.template_values import accepts_any_rank
from liger_dev.template_values import batch_axes
from liger_dev.template_values import literal
from liger_dev.template_values import values


@pytest.fixture(scope="module", autouse=True)
def one_compilation():
    """Asks the real compile child once for each reference and set of options: it takes seconds to start."""
    replies = {}
    ask = analyzer.compile_in_child

    def remembered(reference, options):
        key = (reference, json.dumps(options, sort_keys=True))
        if key not in replies:
            replies[key] = ask(reference, options)
        return replies[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analyzer, "compile_in_child", remembered)
        yield


@pytest.fixture(scope="module")
def files():
    """The stamped files of every case but its op, by name and path."""
    return {name: kernel_files(*load(name), {}, TEMPLATES[1:]) for name in NAMES}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A workspace with rms_norm generated into it, and the change set that did it."""
    root = tmp_path_factory.mktemp("workspace")
    changes = generate(*load("rms_norm"), root)
    workspace.apply(root, changes, "one")
    return root, changes


@pytest.fixture
def root(generated, tmp_path):
    for file in (file for file in generated[0].rglob("*") if file.is_file() and ".liger-dev" not in file.parts):
        target = tmp_path / file.relative_to(generated[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return tmp_path


def test_change_set_is_complete_and_in_order(generated):
    base = [*FILES, ".gitignore"]
    exports = ["kernels/ops/__init__.py", "kernels/modules/__init__.py", "kernels/functional.py"]
    assert [change.path for change in generated[1].changes] == [
        *(path for path in base if path not in exports),
        "kernels/reference/rms_norm.py",
        "profiles/rms_norm.yaml",
        "kernels/ops/rms_norm.py",
        "kernels/modules/rms_norm.py",
        "test/kernels/test_rms_norm.py",
        "benchmark/scripts/benchmark_rms_norm.py",
        *exports,
    ]


def test_second_generation_changes_nothing(root):
    assert generate(*load("rms_norm"), root).changes == ()
    assert check(root) == []


def test_bases_are_what_is_on_disk(root):
    path = root / "kernels" / "functional.py"
    path.write_text("# mine\n" + path.read_text().replace("eps=1e-6", "eps=1e-3"))
    (change,) = generate(*load("rms_norm"), root).changes
    assert change.base == digest(path.read_text())
    assert change.content.startswith("# mine\n")
    assert "eps=1e-6" in change.content


def test_hand_edit_is_refused_by_name(root):
    path = root / "kernels" / "modules" / "rms_norm.py"
    path.write_text(path.read_text().replace("ones_", "zeros_"))
    assert check(root) == ["kernels/modules/rms_norm.py: was edited by hand"]
    with pytest.raises(HandEdited, match="--overwrite") as caught:
        generate(*load("rms_norm"), root)
    assert caught.value.where == "kernels/modules/rms_norm.py"
    (change,) = generate(*load("rms_norm"), root, overwrite=True).changes
    assert "ones_" in change.content


def test_a_hand_written_file_is_refused(root):
    (root / "kernels" / "modules" / "rms_norm.py").write_text("x = 1\n")
    with pytest.raises(HandEdited):
        generate(*load("rms_norm"), root)


def test_an_edited_profile_makes_files_stale(root):
    path = root / "profiles" / "rms_norm.yaml"
    path.write_text("# reviewed\n" + path.read_text())
    assert check(root) == []
    path.write_text(path.read_text().replace("LigerRmsNorm\n", "LigerRMSNorm\n"))
    assert len(check(root)) == len(TEMPLATES)
    assert all("profiles/rms_norm.yaml changed" in line for line in check(root))


def test_a_changed_template_makes_its_file_stale(root, monkeypatch):
    monkeypatch.setattr(generator, "template_hash", lambda template: digest("another" if "modules" in template else ""))
    stale = [line for line in check(root) if line.startswith("kernels/modules/")]
    assert stale == ["kernels/modules/rms_norm.py: is stale: its template changed since it was generated"]


def test_a_renamed_module_is_honoured(root):
    reference, profile = load("rms_norm")
    renamed = profile.model_copy(update={"module_class_name": "LigerRMSNorm"})
    texts = {change.path: change.content for change in generate(reference, renamed, root).changes}
    assert "class LigerRMSNorm(nn.Module)" in texts["kernels/modules/rms_norm.py"]
    assert "import LigerRMSNorm  # noqa: F401" in texts["kernels/modules/__init__.py"]


@pytest.mark.parametrize("name", NAMES)
def test_rendered_files_pass_ruff(name, files, tmp_path):
    reference, profile = load(name)
    everything = {**files[name], **{change.path: change.content for change in skeleton(tmp_path).changes}}
    for path, text in everything.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name, signature",
    [
        ("rms_norm", "x, weight, eps=1e-6, offset=0.0"),
        ("softmax", "x"),
        ("swiglu", "gate, up"),
        ("layer_norm", "x, weight=None, bias=None, eps=1e-5"),
        ("fused_add_rms_norm", "x, residual, weight, eps=1e-6"),
        ("dyt", "x, alpha, gamma, beta"),
    ],
)
def test_functional_signature(name, signature):
    named = values(*load(name))
    assert named["signature"] == signature
    source = generator.functional_source(named)
    assert source.startswith(f"def liger_{name}({signature}):")
    assert all(f"        {tensor}: (" in source for tensor in named["tensor_names"])


def test_modules_have_what_they_need_and_no_more(files):
    texts = {name: files[name][f"kernels/modules/{name}.py"] for name in NAMES}
    classes = {
        name: next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
        for name, text in texts.items()
    }
    methods = {name: [node.name for node in c.body if isinstance(node, ast.FunctionDef)] for name, c in classes.items()}
    assert methods["softmax"] == methods["swiglu"] == ["forward"]
    assert methods["rms_norm"] == ["__init__", "reset_parameters", "forward", "extra_repr"]
    assert 'self.register_parameter("bias", None)' in texts["layer_norm"]
    assert "hidden_size, eps=1e-5, with_weight=True, with_bias=True, device=None, dtype=None" in texts["layer_norm"]
    assert "nn.init.constant_(self.alpha, 0.5)" in texts["dyt"]
    assert "import torch\n\n" not in texts["softmax"]


def test_committed_files_are_the_templates():
    for path in ("kernels/ops/utils.py", "test/utils.py", "test/kernels/conftest.py"):
        assert (ROOT / path).read_text() == render(f"{path}.jinja", {}), path
    assert (ROOT / "kernels/ops/utils.py").read_text() == template_text("kernels/ops/utils.py.jinja")


def test_skeleton_keeps_what_is_there(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / ".gitignore").write_text("dist/")
    changes = {change.path: change for change in skeleton(tmp_path).changes}
    assert "pyproject.toml" not in changes
    assert changes[".gitignore"].content == "dist/\n.liger-dev/\n"
    workspace.apply(tmp_path, skeleton(tmp_path), "one")
    assert skeleton(tmp_path).changes == ()


def test_skeleton_brings_old_helpers_to_this_version(tmp_path):
    workspace.apply(tmp_path, skeleton(tmp_path), "one")
    helper, shared = tmp_path / "test/utils.py", tmp_path / "kernels/functional.py"
    new = helper.read_text()
    helper.write_text("# of an older version\n")
    shared.write_text("# with a kernel's function\n")
    assert skeleton(tmp_path).changes == ()
    assert [(c.path, c.content) for c in skeleton(tmp_path, overwrite=True).changes] == [("test/utils.py", new)]


@pytest.mark.parametrize(
    "body, expected",
    [
        ("return x.mean(-1, keepdim=True)", True),
        ("return x * x.shape[-1]", True),
        ("return torch.softmax(x, dim=-1)", True),
        ("return x.sum()", True),
        ("return x.mean(2)", False),
        ("return x.mean(dim=(1, 2))", False),
        ("B, T, H = x.shape\n    return x / H", False),
        ("return x * x.shape[1]", False),
        ("return x.reshape(x.shape[:1])", False),
        ("return x.unsqueeze(1)", False),
        ("return x.unsqueeze(where)", False),
        ("return x.unsqueeze(last)", True),
        ("return x.sum(CHANNELS)", False),
        ("return halves(x)", False),
    ],
)
def test_references_that_take_any_rank(body, expected):
    reference, _ = load("softmax")
    text = (
        "import torch\n\nCHANNELS = 1\n\n\ndef halves(x):\n    return x[:, : x.shape[-1] // 2]\n\n\n"
        f"def softmax(x, where=1, *, last=-1):\n    {body}\n"
    )
    assert accepts_any_rank(replace(reference, text=text)) is expected


def test_an_annotation_is_no_indexing():
    reference, _ = load("softmax")
    text = "import torch\n\n\ndef softmax(x) -> tuple[torch.Tensor, torch.Tensor]:\n    return x * 2, x * 3\n"
    assert accepts_any_rank(replace(reference, text=text))


@pytest.mark.parametrize("body, refused", [("return x.mean(-1)", False), ("return x.mean(2)", True)])
def test_one_dimension_too_many_is_tried_where_it_means_something_else(body, refused):
    reference, profile = load("softmax")
    reference = replace(reference, text=f"import torch\n\n\ndef softmax(x):\n    {body}\n")
    text = kernel_files(reference, profile, {}, TEMPLATES[2:3])["test/kernels/test_softmax.py"]
    assert ("def test_refuses_rank" in text) is refused
    assert ("batch=(1, 2, 3)" in text) is refused


def test_batch_axes_are_those_that_rows_share():
    reference, _ = load("fused_add_rms_norm")
    assert batch_axes(reference) == ("B", "T")
    x, residual, weight = reference.tensors
    shared = replace(weight, shape=("T", "H"))
    assert batch_axes(replace(reference, tensors=(x, residual, shared))) == ("B",)
    assert batch_axes(replace(reference, tensors=(Tensor("x", ("B", "T", 2, "H")),))) == ("B", "T")


def test_literals_are_as_a_person_writes_them():
    assert [literal(value) for value in (1e-6, 1e-05, 1e20, 0.5, True, 3, "tanh", None)] == [
        "1e-6",
        "1e-5",
        "1e20",
        "0.5",
        "True",
        "3",
        '"tanh"',
        "None",
    ]


def test_committed_kernels_are_as_generated():
    assert check(ROOT) == []


@pytest.mark.parametrize("step", ["add_import", "add_function"])
def test_exports_that_another_process_writes_meanwhile_are_not_lost(tmp_path, monkeypatch, step):
    """Two commands in one workspace: the second's files come in place while the first renders its own."""
    edit, name = getattr(edits, step), "kernels/functional.py" if step == "add_function" else "kernels/ops/__init__.py"
    workspace.apply(tmp_path, skeleton(tmp_path), "before")
    before = workspace.read(tmp_path, name)
    line = "from kernels.ops.another import LigerAnotherFunction  # noqa: F401\n"
    other = ChangeSet((workspace.View(tmp_path).change(name, before + line),))

    def while_another_writes(*args, **kwargs):
        monkeypatch.setattr(edits, step, edit)
        workspace.apply(tmp_path, other, "other")
        return edit(*args, **kwargs)

    monkeypatch.setattr(edits, step, while_another_writes)
    changes = generate(*load("rms_norm"), tmp_path)
    with pytest.raises(StaleWorkspace, match="was changed on disk"):
        workspace.apply(tmp_path, changes, "this")
    assert workspace.read(tmp_path, name) == before + line
    workspace.apply(tmp_path, generate(*load("rms_norm"), tmp_path), "again")
    text = workspace.read(tmp_path, name)
    assert line in text and "from kernels.ops.rms_norm import LigerRmsNormFunction" in text
