"""What the user typed becomes a Source, or one clear error; nothing of it runs."""

import subprocess
import sys

import pytest

from liger_dev.errors import BadInput
from liger_dev.sources import catalog_names
from liger_dev.sources import catalog_source
from liger_dev.sources import closest_in_catalog
from liger_dev.sources import resolve

FUNCTION = "import torch\n\n\ndef square(x):\n    return x * x\n"
SEVERAL = (
    FUNCTION
    + "\n\ndef cube(x):\n    return x * square(x)\n\n\nclass Cube:\n    pass\n\n\ndef _private(x):\n    return x\n"
)

CATALOG = (
    "dyt fused_add_rms_norm geglu geglu_erf gemma_rms_norm l2_norm layer_norm log_softmax relu_squared rms_norm "
    "softmax swiglu"
).split()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "square.py").write_text(FUNCTION)
    (tmp_path / "several.py").write_text(SEVERAL)
    (tmp_path / "broken.py").write_text("import torch\n\ndef square(x:\n    return x\n")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "empty.py").write_text("x = 3\n")
    (tmp_path / "notes.txt").write_text("x * x")
    (tmp_path / "package.py").mkdir()
    (tmp_path / "folder").mkdir()
    return tmp_path


def named(source, folder, name="op", shapes={}, init=()):
    return resolve(name, source, shapes=shapes, init=list(init), cwd=folder)


def test_catalogue_lists_every_operation_with_a_summary():
    names = catalog_names()
    assert [name for name, _ in names] == CATALOG
    assert all(summary.endswith(".") and len(summary) > 20 for _, summary in names)


def test_catalogue_source_is_a_function_of_that_name(folder):
    found = resolve("dyt", None, shapes={}, init=[], cwd=folder)
    assert (found.kind, found.entry, found.origin) == ("function", "dyt", "catalogue: dyt")
    assert "def dyt(" in found.text
    assert named("dyt", folder, name="other") == catalog_source("dyt")


def test_closest_kernel_is_told_by_the_catalogue_and_not_copied_into_the_reference():
    assert closest_in_catalog("gemma_rms_norm") == "rms_norm"
    assert closest_in_catalog("rms_norm") == ""
    assert "CLOSEST" not in catalog_source("gemma_rms_norm").text


def test_file_with_one_function(folder):
    found = named("square.py", folder)
    assert (found.kind, found.text, found.entry, found.origin) == ("function", FUNCTION, "square", "square.py")


def test_file_with_a_name(folder):
    assert named("several.py:Cube", folder).entry == "Cube"
    assert named(f"{folder}/several.py:_private", folder).entry == "_private"


@pytest.mark.parametrize(
    ("source", "entry"),
    [
        ("torch.nn.functional.silu", "torch.nn.functional:silu"),
        ("torch.nn:RMSNorm", "torch.nn:RMSNorm"),
        ("torch:nn.RMSNorm", "torch:nn.RMSNorm"),
    ],
)
def test_importable_name(folder, source, entry):
    found = named(source, folder)
    assert (found.kind, found.text, found.entry, found.origin) == ("import", "", entry, source)


@pytest.mark.parametrize("source", ["silu(gate) * up", "gate / up", "x.square()", "-x", "x if y else z"])
def test_expression(folder, source):
    found = named(source, folder)
    assert (found.kind, found.text) == ("expression", source)


def test_shapes_and_init_values(folder):
    found = named("square.py", folder, shapes={"x": "B, T,64"}, init=["hidden_size=4096", "eps = 1e-6", "kind='tanh'"])
    assert found.shapes == {"x": ("B", "T", 64)}
    assert found.init == {"hidden_size": 4096, "eps": 1e-6, "kind": "tanh"}


@pytest.mark.parametrize(
    ("source", "what", "todo"),
    [
        ("absent.py", "there is no such file", "check the path"),
        ("package.py", "the source is a directory", "path.py:Name"),
        ("./folder", "the source is a directory", "path.py:Name"),
        ("notes.txt", "the source is not a Python file", "path.py:Name"),
        ("latin.py", "the file is not UTF-8", "save it as UTF-8"),
        ("broken.py", "the file is not valid Python", "mend the line"),
        ("several.py:quad", "the file defines no 'quad'", "square, cube, Cube, _private"),
        ("several.py", "the file defines several functions and classes", "several.py:NAME, of square, cube, Cube"),
        ("empty.py", "the file defines no public function or class", "define the operation"),
        ("https://github.com/a/b.py", "sources from a URL are not in this version yet", ".py file"),
        ("a norm that divides by the largest value", "the source is not understood", "--engine claude"),
        ("softmaxx", "'softmaxx' is neither in the catalogue nor a file", "did you mean softmax or log_softmax?"),
    ],
)
def test_source_that_cannot_be_read(folder, source, what, todo):
    with pytest.raises(BadInput) as caught:
        named(source, folder)
    assert caught.value.what.startswith(what)
    assert todo in caught.value.todo
    assert caught.value.exit_code == 2


def test_syntax_error_names_its_line(folder):
    with pytest.raises(BadInput) as caught:
        named("broken.py", folder)
    assert caught.value.where == "broken.py:3"


def test_unknown_name_comes_with_close_ones(folder):
    with pytest.raises(BadInput) as caught:
        resolve("rmsnorm", None, shapes={}, init=[], cwd=folder)
    assert caught.value.what == "the catalogue has no operation 'rmsnorm'"
    assert "did you mean rms_norm" in caught.value.todo
    assert "liger-dev list" in caught.value.todo


@pytest.mark.parametrize("name", ["RmsNorm", "rms-norm", "", "../x", "rms_norm\n"])
def test_name_that_is_no_name(folder, name):
    with pytest.raises(BadInput, match="is no name for an operation"):
        resolve(name, "x * x", shapes={}, init=[], cwd=folder)


@pytest.mark.parametrize(
    ("init", "what"),
    [
        ("hidden_size", "'hidden_size' is not of the form name=value"),
        ("1x=3", "'1x=3' is not of the form name=value"),
        ("kind=tanh", "the value of 'kind=tanh' is no Python literal"),
        ("x=open('f')", "the value of 'x=open('f')' is no Python literal"),
    ],
)
def test_bad_init(folder, init, what):
    with pytest.raises(BadInput) as caught:
        named("square.py", folder, init=[init])
    assert (caught.value.what, caught.value.where) == (what, "--init")


@pytest.mark.parametrize("shape", ["", "B,,T-1", "B T"])
def test_bad_shape(folder, shape):
    with pytest.raises(BadInput, match="is no shape"):
        named("square.py", folder, shapes={"x": shape})


def test_reading_a_source_imports_no_torch():
    script = "import sys; import liger_dev.sources as s; s.catalog_names(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
