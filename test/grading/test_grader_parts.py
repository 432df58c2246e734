"""The grader's parts on their own: cases, bytes, comparisons, verdicts and the reading of texts."""

import json

import pytest
import torch

from liger_dev.grader import with_strength
from liger_dev.grader_report import lines
from liger_dev.grading import reference_child
from liger_dev.grading import wire
from liger_dev.grading.cases import axes_of
from liger_dev.grading.cases import grade_cases
from liger_dev.grading.cases import shape_of
from liger_dev.grading.children import find_function
from liger_dev.grading.compare import Given
from liger_dev.grading.compare import compare
from liger_dev.grading.draw import draw_inputs
from liger_dev.grading.judge import contracts
from liger_dev.grading.static_reading import read_files
from liger_dev.grading.static_reading import read_text
from liger_dev.grading.verdict import Fault
from liger_dev.grading.verdict import Mutant
from liger_dev.grading.verdict import Strength
from liger_dev.grading.verdict import Verdict
from liger_dev.grading.verdict import read_verdict
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.render import render
from liger_dev.skeleton import skeleton

TENSORS = (Tensor("x", ("B", "T", "H")), Tensor("weight", ("H",), init="ones"), Tensor("label", ("B", "T"), "int"))
SCALARS = (Scalar("eps", "float", 1e-6), Scalar("flag", "bool", False))


def test_axes_are_told_by_their_names_alone():
    assert axes_of(TENSORS) == axes_of(TENSORS[:2])
    assert axes_of(TENSORS).batch == ("B", "T")
    assert axes_of(TENSORS).columns == "H"
    # An axis that stands alone elsewhere leads nothing.
    assert axes_of((Tensor("a", ("M", "K")), Tensor("b", ("K", "N")), Tensor("c", ("M",)))).batch == ("M",)
    assert axes_of((Tensor("a", ("M", "K")), Tensor("b", ("N", "M")))).batch == ()
    assert axes_of((Tensor("a", ("M", 2, "K")),)).batch == ("M",)
    # A row is taken from the table by each index.
    taken = axes_of((Tensor("table", ("V", "H")), Tensor("index", ("B", "T"), "int", range="V")))
    assert (taken.batch, taken.columns, taken.others) == (("B", "T"), "H", ("V",))


def test_cases_follow_from_the_seed_and_hold_every_class():
    cases = grade_cases(TENSORS, SCALARS, 1)
    assert cases == grade_cases(TENSORS, SCALARS, 1)
    assert cases != grade_cases(TENSORS, SCALARS, 2)
    shapes = [shape_of(TENSORS[0], axes_of(TENSORS), case) for case in cases]
    assert any(shape[-1] == 1 for shape in shapes)
    assert any(0 in shape for shape in shapes)
    assert any(shape[-1] > 4096 for shape in shapes)
    assert {len(shape) for shape in shapes} == {1, 2, 3, 4}
    assert {case.dtype for case in cases} == {"float32", "bfloat16", "float16"}
    ids = " ".join(case.id for case in cases)
    for part in (
        "layout expanded",
        "values nan",
        "upstream gradient zero",
        "flag=True",
        "under no_grad",
        "float32 parameters",
    ):
        assert part in ids


def test_weights_are_never_all_ones_or_zeros():
    for case in grade_cases(TENSORS, SCALARS, 3):
        weight = draw_inputs(TENSORS, case, torch.Generator().manual_seed(0))["weight"]
        assert weight.numel() < 2 or (not (weight == 1).all() and not (weight == 0).all())


@pytest.mark.parametrize("whole", [True, False])
def test_tensors_keep_values_and_strides_as_bytes(tmp_path, whole):
    x = torch.randn(4, 9)[1:, 1::2]
    tensors = {
        "x": x,
        "none": None,
        "empty": torch.empty(0, 3),
        "half": torch.randn(3).bfloat16(),
        "flag": torch.tensor(True),
    }
    wire.write(tmp_path, "a", {"said": 1}, tensors, whole)
    record, found = wire.read(tmp_path, "a")
    assert record == {"said": 1}
    assert found["none"] is None
    for name in ("x", "empty", "half", "flag"):
        assert torch.equal(found[name], tensors[name])
        assert found[name].dtype == tensors[name].dtype
    assert found["x"].stride() == x.stride()
    assert found["x"].storage_offset() == (x.storage_offset() if whole else 0)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1 << 40]},
        {"stride": [-1]},
        {"offset": 5},
        {"dtype": "object"},
        {"bytes": [0, 1 << 50]},
        {"bytes": None},
    ],
)
def test_an_index_that_lies_is_refused(tmp_path, change):
    wire.write(tmp_path, "a", {}, {"x": torch.zeros(3)})
    index = json.loads((tmp_path / "a.json").read_text())
    index["tensors"]["x"] |= change
    (tmp_path / "a.json").write_text(json.dumps(index))
    with pytest.raises(wire.BadWire):
        wire.read(tmp_path, "a")


def test_a_missing_result_is_no_result(tmp_path):
    with pytest.raises(wire.BadWire, match="there is no result"):
        wire.read(tmp_path, "a")


def judged(actual, true, eager=None, **record):
    eager = true.float() if eager is None else eager
    record = {"exact": [True], "types": ["Tensor"], **record}
    expected = {"eager output 0": eager, "true output 0": true}
    return compare(Given("a case", {"gradients": True}, record, {"output 0": actual}, expected, {}))


def test_the_bound_follows_from_eagers_own_error():
    true = torch.tensor([1.0, -2.0], dtype=torch.float64)
    faults, (margin,) = judged(true.float() + 3e-6, true, eager=true.float() + 1e-6)
    assert not faults
    assert margin.bound == pytest.approx(4 * margin.eager_error)
    faults, _ = judged(true.float() + 6e-6, true, eager=true.float() + 1e-6)
    assert [fault.kind for fault in faults] == ["wrong values"]


@pytest.mark.parametrize(
    "actual, kind",
    [
        (torch.zeros(2, 3), "wrong values"),
        (torch.zeros(3, 2), "another shape of an output"),
        (torch.ones(2, 3, dtype=torch.float64), "another dtype of an output"),
        (torch.ones(3, 2).t(), "another stride of an output"),
        (torch.full((2, 3), float("nan")), "wrong values"),
        (None, "missing output"),
    ],
)
def test_exact_before_close(actual, kind):
    faults, _ = judged(actual, torch.ones(2, 3, dtype=torch.float64))
    assert [fault.kind for fault in faults] == [kind]


def test_nan_stands_only_where_it_should():
    true = torch.tensor([1.0, float("nan")], dtype=torch.float64)
    assert judged(true.float(), true)[0] == []
    assert judged(torch.full((2,), float("nan")), true)[0]
    assert judged(torch.ones(2), true)[0]


@pytest.mark.parametrize("true", [float("inf"), 1e60])
@pytest.mark.parametrize("value, right", [(float("nan"), True), (float("-inf"), True), (1.0, False)])
def test_a_gradient_that_overflows_is_no_number_of_some_kind(value, right, true):
    true = torch.tensor([1.0, true], dtype=torch.float64)
    expected = {"eager gradient of x": torch.tensor([1.0, float("inf")]), "true gradient of x": true}
    given = {"gradient of x": torch.tensor([1.0, value])}
    faults, _ = compare(Given("a case", {"gradients": True}, {"exact": [], "types": []}, given, expected, {}))
    assert [fault.kind for fault in faults] == ([] if right else ["wrong values"])


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "value, right", [((0.0, INF), True), ((NAN, 0.0), True), ((INF, INF), False), ((NAN, NAN), False)]
)
def test_each_element_of_a_gradient_is_none_where_eagers_or_the_true_one_is(value, right):
    """Eager overflows in the first element, the truth in the second."""
    expected = {
        "eager gradient of x": torch.tensor([1.0, NAN, 0.0], dtype=torch.float16),
        "true gradient of x": torch.tensor([1.0, 0.0, 1e6], dtype=torch.float64),
    }
    given = {"gradient of x": torch.tensor([1.0, *value], dtype=torch.float16)}
    faults, _ = compare(Given("a case", {"gradients": True}, {"exact": [], "types": []}, given, expected, {}))
    assert [fault.kind for fault in faults] == ([] if right else ["wrong values"])


def test_a_verdict_without_cases_is_no_pass():
    assert not Verdict((), 0).passed
    assert Verdict((), 1).passed
    verdict = Verdict((Fault("a kind", "here", "text"),), 3, strength=Strength((Mutant("a", 1, "b", "killed"),), 4))
    assert read_verdict(json.dumps(verdict.to_json())) == verdict
    with pytest.raises(ValueError):
        read_verdict("{}")


def test_weak_tests_fail_the_suite():
    weak = Strength(
        (Mutant("mask one too wide", 12, "cols < n", "survived"),) + (Mutant("a", 1, "b", "killed"),) * 9, 10
    )
    (fault,) = with_strength(Verdict((), 5, strength=weak)).faults
    assert fault.kind == "the tests are too weak"
    assert "mask one too wide in line 12" in fault.what
    strong = Strength((Mutant("a", 1, "b", "killed"),) * 20, 20)
    assert with_strength(Verdict((), 5, strength=strong)).passed
    assert not with_strength(Verdict((), 5, strength=Strength(fault="it fails"))).passed


@pytest.mark.parametrize(
    "text, subject",
    [
        ("import torch\nt = torch\n", "torch as a value"),
        ("def f(open):\n    return open\n\n\ndef g():\n    return open('x')\n", "open"),
        ("def f(ctx):\n    ctx = f\n", "ctx ="),
        ("def f(x):\n    return x.__class__\n", ".__class__"),
        ("def f(x):\n    f.cache = x\n", "f.cache ="),
        ("class A:\n    cache = {}\n", "class attribute"),
        ("def f(x, cache=[]):\n    return x\n", "default value"),
        ("import functools\n\n\n@functools.cache\ndef f(x):\n    return x\n", "@functools.cache"),
        ("def f(x):\n    global y\n    y = x\n", "global"),
        ("def f(x):\n    return x.matmul(x)\n", ".matmul"),
        ("from torch import mm\n", "import torch.mm"),
        ("from torch import *\n", "import torch.*"),
        ("from . import other\n", "import ."),
        ("from kernels.reference.rms_norm import rms_norm\n", "import kernels.reference.rms_norm"),
        ("def f(x)\n", "syntax"),
    ],
)
def test_what_is_not_allowed_is_named(text, subject):
    assert subject in [finding.subject for finding in read_text(text, "op.py")]


def test_sizes_are_multiples_of_what_the_op_demands():
    tensors = (Tensor("x", ("B", "C", "H")),)
    cases = grade_cases(tensors, (), 1, {"C": 4, "H": 2})
    assert [case.id for case in cases] == [case.id for case in grade_cases(tensors, (), 1)]
    shapes = [shape_of(tensors[0], axes_of(tensors), case) for case in cases]
    assert all(shape[-1] % 2 == 0 and (len(shape) != 3 or shape[1] % 4 == 0) for shape in shapes)


def test_what_all_kernels_share_holds_nothing_that_the_grader_refuses(tmp_path):
    shared = [change for change in skeleton(tmp_path).changes if change.path.startswith("kernels/ops/")]
    assert shared and [read_text(change.content, change.path) for change in shared] == [()] * len(shared)


KERNEL = "@triton.jit\ndef k(x_ptr):\n    pass\n\n\n"
FUNCTION = "class A(torch.autograd.Function):\n    pass\n\n\n"


@pytest.mark.parametrize(
    "text, wanted",
    [
        (KERNEL + FUNCTION, "A"),
        (KERNEL + FUNCTION + "def liger_softmax(x):\n    return A.apply(x)\n", "liger_softmax"),
        (KERNEL + "def fn(x):\n    return x\n", "fn"),
        (KERNEL + "def fn(x):\n    return _g(x)\n\n\ndef _g(x):\n    return x\n", "fn"),
        (KERNEL + "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n", ""),
        (KERNEL + FUNCTION + FUNCTION.replace("A", "B"), ""),
        (KERNEL, ""),
    ],
)
def test_what_is_called_in_a_file_is_found_or_asked_for(text, wanted):
    assert find_function(text, "softmax") == wanted


def test_what_was_not_put_to_the_test_has_not_held():
    cases = grade_cases((Tensor("x", ("B", "T", "V")),), (), 7)
    hangs = Fault("hangs", "after 1 of 48 cases", "it did not end within 120 s")
    for ended in (0, 1):
        found = {contract.name: contract.outcome for contract in contracts(cases, [hangs], [{}] * ended, 0)}
        assert found["inputs are left as they are"] == ("held" if ended else "not run")
        assert found["under no_grad"] == found["gradients accumulate"] == "not run"


def test_helpers_of_generated_ops_are_allowed(tmp_path):
    """What the template of the helpers does at import, or calls, may not fail every kernel."""
    folder = tmp_path / "kernels" / "ops"
    folder.mkdir(parents=True)
    (folder / "utils.py").write_text(render("kernels/ops/utils.py.jinja", {}))
    (folder / "op.py").write_text("from kernels.ops.utils import row_shape\n")
    assert read_files(folder / "op.py", tmp_path) == ()


FAULTS = (
    Fault("not allowed", "op.py:3", "torch.tanh: computes with PyTorch's own kernels"),
    Fault("wrong values", "no rows and 1 other of 9 cases", "output 0 is off by 2"),
    Fault("not allowed", "op.py:9", "torch.tanh: computes with PyTorch's own kernels"),
)


def test_a_verdict_names_each_fault_once_and_what_would_accept_it():
    told = lines(Verdict(FAULTS, 9, device="a device", accepted=("try",), seed=3))
    assert told[:3] == [
        "Failed: 3 faults in 9 cases on a device",
        "  wrong values (no rows and 1 other of 9 cases)",
        "    output 0 is off by 2",
    ]
    assert told[3:5] == ["  not allowed (op.py:3 and 1 more)", "    torch.tanh: computes with PyTorch's own kernels"]
    assert "--allow all" in told[5] and told[-2:] == ["  accepted: try", "  seed: 3"]
    assert lines(Verdict(FAULTS[1:2], 9))[0].startswith("Failed: 1 fault in 9 cases")


def test_promises_are_told_by_their_outcome():
    told = "\n".join(lines(Verdict((), 9, contracts=contracts((), (), (), 0, {"own::op": "no fake kernel"}))))
    assert "  broken: torch.library.opcheck\n" in told
    assert "  not run (there is no CUDA device): torch.compile, whole graph; autocast;" in told


def test_strides_that_only_eager_refuses_do_not_hide_the_truth(tmp_path):
    path = tmp_path / "pairs.py"
    path.write_text(
        "import torch\n\n\ndef pairs(x):\n"
        "    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * 2)\n"
    )
    function, x = reference_child.load(path, "pairs"), torch.randn(3, 8)
    assert torch.equal(function(x=torch.randn(8, 3).t().copy_(x)), function(x=x))
    assert torch.equal(function(x=torch.randn(25)[1:].view(3, 8).copy_(x)), function(x=x))
    with pytest.raises(RuntimeError, match="unflatten"):
        function(x=torch.randn(8, 3).t()[:, :7])


def test_indices_that_the_reference_refuses_leave_a_case_out(tmp_path):
    path = tmp_path / "picks.py"
    path.write_text("def picks(x, index):\n    return x.gather(1, index)\n")
    inputs = {"x": torch.randn(3, 4), "index": torch.full((3, 1), 5)}
    function = reference_child.load(path, "picks")
    record, _ = reference_child._shapes(function, {"alias": None, "scalars": {}}, inputs)
    assert "out of bounds" in record["refused"]
