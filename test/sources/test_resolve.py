"""What the user typed becomes a Source, or one clear error; nothing of it runs."""

import hashlib
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
    found = [name for name, _ in names]
    assert found == sorted(found) and set(CATALOG) <= set(found)
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


def piped(text, folder, source="-", name="op"):
    return resolve(name, source, shapes={}, init=[], cwd=folder, read_stdin=lambda: text)


@pytest.mark.parametrize("text", ["silu(gate) * up\n", "(silu(gate)\n * up)", "silu(gate) *\n  up"])
def test_expression_on_standard_input(folder, text):
    found = piped(text, folder)
    assert (found.kind, found.entry) == ("expression", "")
    assert found.text.replace("(silu", "silu").rstrip(")").split() == ["silu(gate)", "*", "up"]


def test_file_on_standard_input(folder):
    found = piped(FUNCTION, folder)
    assert (found.kind, found.text, found.entry, found.origin) == ("function", FUNCTION, "square", "standard input")
    assert piped(SEVERAL, folder, "-:Cube").entry == "Cube"
    assert piped(SEVERAL, folder, name="cube").entry == "cube"


@pytest.mark.parametrize(
    ("text", "source", "what"),
    [
        (" \n", "-", "there is nothing on it"),
        (SEVERAL, "-", "the file defines several functions and classes"),
        (FUNCTION, "-:cube", "the file defines no 'cube'"),
        ("divide by the\nlargest value", "-", "the file is not valid Python"),
    ],
)
def test_standard_input_that_cannot_be_used(folder, text, source, what):
    with pytest.raises(BadInput) as caught:
        piped(text, folder, source)
    assert caught.value.what.startswith(what) and caught.value.where.startswith("standard input") and caught.value.todo


@pytest.mark.parametrize(("data", "what"), [(b"\xe9", "not UTF-8"), (b"#" * 1_000_001, "longer than 1,000,000 bytes")])
def test_standard_input_that_cannot_be_read(tmp_path, data, what):
    command = [sys.executable, "-m", "liger_dev", "analyze", "op", "--from", "-", "--root", str(tmp_path), "--yes"]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    assert done.returncode == 2 and what in done.stderr.decode() and "  do:    " in done.stderr.decode()


def fetched(text, folder, source):
    asked = []
    read_url = lambda address: asked.append(address) or text
    return resolve("op", source, shapes={}, init=[], cwd=folder, read_url=read_url), asked


def test_page_of_a_repository(folder):
    found, asked = fetched(SEVERAL, folder, "https://github.com/o/r/blob/main/several.py:cube")
    assert asked == ["https://raw.githubusercontent.com/o/r/main/several.py"]
    assert (found.kind, found.text, found.entry, found.origin) == ("function", SEVERAL, "cube", asked[0])
    assert found.sha256 == hashlib.sha256(SEVERAL.encode()).hexdigest()


def test_page_with_several_functions(folder):
    with pytest.raises(BadInput) as caught:
        fetched(SEVERAL, folder, "https://files.test/several.py")
    assert "name one: https://files.test/several.py:NAME" in caught.value.todo


def test_model_of_a_benchmark_file_is_taken_by_convention(folder):
    text = "class Model:\n    pass\n\n\ndef get_inputs():\n    return []\n\n\ndef get_init_inputs():\n    return []\n"
    assert piped(text, folder).entry == "Model"


def test_the_only_class_of_a_benchmark_file_is_its_model(folder):
    text = "class RMSNorm:\n    pass\n\n\ndef get_inputs():\n    return []\n\n\ndef get_init_inputs():\n    return []\n"
    assert piped(text, folder).entry == "RMSNorm"
    with pytest.raises(BadInput, match="several functions and classes") as caught:
        piped(text + "\n\nclass LayerNorm:\n    pass\n", folder)
    assert caught.value.todo == "name one: -:NAME, of RMSNorm, LayerNorm"


def test_part_and_arguments_of_a_configuration(folder):
    found = resolve("op", "square.py", shapes={}, init=["config.hidden_size=64"], cwd=folder, part=2)
    assert (found.part, found.init) == (2, {"config.hidden_size": 64})


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
        ("http://github.com/a/b.py", "the address is http:// and not https://", "--from FILE.py"),
        ("a norm that divides by the largest value", "the source is not understood", "--engine claude"),
        ("softmaxx", "'softmaxx' is neither in the catalogue nor a file", "did you mean softmax or log_softmax"),
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


@pytest.mark.parametrize(
    "given, found",
    [
        ({"x": "B,2*H"}, {"x": ("B", "H2")}),
        ({"x": "B,H", "packed": "B,H * 3"}, {"x": ("B", "H3/3"), "packed": ("B", "H3")}),
        ({"x": "2*H", "y": "3*H", "z": "H/2"}, {"x": ("H6/3",), "y": ("H6/2",), "z": ("H6/12",)}),
        ({"x": "H2,2*H", "cos": "T,D / 2"}, {"x": ("H2", "H2_"), "cos": ("T", "D / 2")}),
    ],
)
def test_multiples_of_axes_become_parts_of_longer_ones(folder, given, found):
    assert named("square.py", folder, shapes=given).shapes == found


@pytest.mark.parametrize("shape", ["", "B,,T-1", "B T", "B,0*T", "N*D"])
def test_bad_shape(folder, shape):
    with pytest.raises(BadInput, match="is no shape"):
        named("square.py", folder, shapes={"x": shape})


def test_reading_a_source_imports_no_torch():
    script = "import sys; import liger_dev.sources as s; s.catalog_names(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_page_of_words_is_a_source_only_where_an_agent_may_be_asked(tmp_path):
    text = "Multiply x by the sigmoid of beta x."
    options = {"shapes": {}, "init": [], "cwd": tmp_path, "read_url": lambda address: text, "read_stdin": lambda: text}
    for source in ("https://example.com/paper.md", "-"):
        found = resolve("op", source, words=True, **options)
        assert (found.kind, found.text, found.entry) == ("prose", text, "")
        assert bool(found.sha256) is source.startswith("https"), "what was fetched is looked at first"
        with pytest.raises(BadInput, match="not valid Python"):
            resolve("op", source, **options)
    options["read_url"] = lambda address: "def op(x):\n    return x\n"
    assert resolve("op", "https://example.com/op.py", words=True, **options).kind == "function"


@pytest.mark.parametrize(
    ("text", "name", "entry"),
    [
        ("def half(x):\n    return x / 2\n\n\ndef gate(x):\n    return half(x) * x\n", "op", "gate"),
        (
            "class Config:\n    dim = 4\n\n\nclass Norm:\n    def __init__(self, config: Config):\n        pass\n",
            "op",
            "Norm",
        ),
        ("class RMSNorm:\n    pass\n\n\nclass LayerNorm:\n    pass\n", "rms_norm", "RMSNorm"),
    ],
)
def test_of_several_definitions_the_one_that_can_be_meant(folder, text, name, entry):
    assert piped(text, folder, name=name).entry == entry
