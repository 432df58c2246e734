"""Every attack is rejected, with a verdict that names what it did; the honest kernel passes with its margins.

An attack is judged twice where it can be: by its text, as every candidate is, and by what it does when it is run
although its text was refused, so that no layer rests on another one.
"""

import os

from dataclasses import replace
from pathlib import Path

import pytest

from attack_cases import ATTACKS

from liger_dev.grading import children
from liger_dev.grading.grade import grade
from liger_dev.grading.request import Request
from liger_dev.grading.static_reading import read_files
from liger_dev.records import Reference
from liger_dev.records import Scalar
from liger_dev.records import Tensor
from liger_dev.sandbox import bubblewrap

ROOT = Path(__file__).parents[2]
HOSTILE = Path(__file__).parent / "hostile"

SOFTMAX = Reference(
    "softmax",
    "import torch\n\n\ndef softmax(x):\n    return torch.softmax(x.float(), -1).to(x.dtype)\n",
    (Tensor("x", ("B", "T", "V")),),
    (),
    "a test",
)
RMS_NORM = Reference(
    "rms_norm",
    (ROOT / "liger_dev" / "catalog" / "rms_norm.py").read_text(),
    (Tensor("x", ("B", "T", "H")), Tensor("weight", ("H",), init="ones")),
    (Scalar("eps", "float", 1e-6), Scalar("offset", "float", 0.0)),
    "a test",
)
# A few classes are enough to catch these; the honest kernels of the gallery run through all.
FEW = (
    "prime columns",
    "new values",
    "beyond one block, float32",
    "1 batch",
    "layout transposed",
    "upstream gradient constant",
    "under no_grad",
)
# What is caught by numbers, launches or operations must be caught on a device too.
ON_A_DEVICE = (
    "freed_memory",
    "failed_launch",
    "nan_everywhere",
    "half_arithmetic",
    "unit_upstream",
    "remembers_contents",
    "skips_calls",
    "lazy_tensor",
    "plain_pytorch",
    "try_except",
    "decoy_matmul",
)


@pytest.fixture
def workspace(tmp_path):
    """The package that hostile candidates stand in, and a test file for them to write over."""
    root = tmp_path / "workspace"
    (root / "kernels" / "ops").mkdir(parents=True)
    for path in ("kernels/__init__.py", "kernels/ops/__init__.py"):
        (root / path).write_text("")
    (root / "kernels/ops/honest.py").write_text((HOSTILE / "honest.py").read_text())
    for name in ("utils", "rms_norm"):
        (root / f"kernels/ops/{name}.py").write_text(
            (ROOT / f"test/generator/ops/{name}.py").read_text()
            if (ROOT / f"test/generator/ops/{name}.py").is_file()
            else (ROOT / f"kernels/ops/{name}.py").read_text()
        )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text("def test_it():\n    assert False\n")
    return tmp_path


@pytest.fixture(scope="module")
def truths():
    return {}


@pytest.fixture
def one_truth(truths, monkeypatch):
    """Candidates of one reference are graded on the same inputs here: its child is asked for each case once."""
    ask = children._ask_reference

    def remembered(request, what, called):
        # What is drawn follows from a case's place too, which its file tells.
        keys = [(what, request.reference.text, one.case.id, one.file) for one in called]
        new = [(key, one) for key, one in zip(keys, called) if key not in truths]
        answers = ask(request, what, [one for _, one in new]) if new else ()
        truths.update(zip((key for key, _ in new), answers))
        return [truths[key] for key in keys]

    monkeypatch.setattr(children, "_ask_reference", remembered)


def put(workspace, name):
    op = workspace / "workspace" / "kernels" / "ops" / f"{name}.py"
    op.write_text((HOSTILE / f"{name}.py").read_text())
    return op


def request(workspace, name, **options):
    reference = RMS_NORM if name in ("ignores_weights", "no_weight_gradient") else SOFTMAX
    (workspace / "scratch").mkdir()
    hashed = (str(workspace / "tests/test_it.py"), str(workspace / "left behind"))
    settings = dict(
        root=str(workspace / "workspace"), seed=7, scratch=str(workspace / "scratch"), hashed=hashed, cases=FEW
    )
    return Request(str(put(workspace, name)), reference, **{**settings, **options})


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.reads])
@pytest.mark.usefixtures("one_truth")
def test_its_text_convicts(workspace, name):
    verdict = grade(request(workspace, name, cases=("1 batch",)))
    assert not verdict.passed
    run = 2 if name == "int32_offsets" else 0
    assert verdict.cases == run, "what is refused is not run, but offsets are told beside what the kernel does"
    assert ATTACKS[name].reads in "\n".join(fault.what for fault in verdict.faults)
    assert all(fault.kind == "not allowed" for fault in verdict.faults)
    assert (workspace / "tests/test_it.py").read_text().startswith("def test_it")


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.shows])
@pytest.mark.usefixtures("one_truth")
def test_what_it_does_convicts(workspace, name):
    if bubblewrap() and name in ("edits_tests", "writes_outside"):
        pytest.skip("bubblewrap keeps it from writing at all")
    verdict = grade(request(workspace, name, static=False, seconds=10 if name == "hangs" else 120))
    assert not verdict.passed
    assert ATTACKS[name].shows in {fault.kind for fault in verdict.faults}, "\n".join(map(str, verdict.faults))


@pytest.mark.usefixtures("one_truth")
def test_the_honest_kernel_passes_with_margins(workspace):
    verdict = grade(request(workspace, "honest"))
    assert verdict.passed, "\n".join(map(str, verdict.faults))
    assert {margin.tensor for margin in verdict.margins} == {"output 0", "gradient of x"}
    assert all(margin.margin >= 1 for margin in verdict.margins)
    assert {name for _, name, _ in verdict.launches} == {"forward_kernel", "backward_kernel"}
    assert all(contract.outcome != "broken" for contract in verdict.contracts)
    for margin in verdict.margins:
        print(f"{margin.tensor} {margin.dtype}: {margin.margin:.2f} ({margin.case})")


@pytest.mark.gpu
def test_the_honest_kernel_keeps_its_promises_on_a_device(workspace):
    verdict = grade(request(workspace, "honest", device="cuda", cases=()))
    assert verdict.passed, "\n".join(map(str, verdict.faults))
    outcomes = {contract.name: contract.outcome for contract in verdict.contracts}
    for name in ("torch.compile, whole graph", "autocast", "a stream of its own", "captured in a CUDA graph"):
        assert outcomes[name] == "held"
    assert {name for _, name, _ in verdict.launches} == {"forward_kernel", "backward_kernel"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_DEVICE)
def test_what_it_does_convicts_on_a_device(workspace, name):
    verdict = grade(request(workspace, name, device="cuda", static=False))
    assert not verdict.passed
    assert ATTACKS[name].shows in {fault.kind for fault in verdict.faults}, "\n".join(map(str, verdict.faults))


@pytest.mark.usefixtures("one_truth")
def test_right_numbers_are_told_from_a_kernel(workspace):
    verdict = grade(request(workspace, "plain_pytorch", static=False))
    kinds = {fault.kind for fault in verdict.faults}
    assert "launches no kernel in forward" in kinds
    assert not {kind for kind in kinds if kind.startswith(("wrong", "another", "missing"))}
    assert verdict.margins


@pytest.mark.usefixtures("one_truth")
def test_an_operator_that_is_registered_must_pass_opcheck(workspace):
    verdict = grade(request(workspace, "registers_an_operator", static=False, cases=("1 batch",)))
    (fault,) = (fault for fault in verdict.faults if fault.kind == "fails torch.library.opcheck")
    assert "hostile::softmax" in fault.where
    assert ("torch.library.opcheck", "broken") in [(c.name, c.outcome) for c in verdict.contracts]


@pytest.mark.usefixtures("one_truth")
def test_no_secret_reaches_a_candidate(workspace, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret that no child may see")
    verdict = grade(request(workspace, "reads_the_environment", static=False))
    assert "the key is None" in str(verdict.faults)


@pytest.mark.usefixtures("one_truth")
def test_what_a_candidate_forks_does_not_outlive_it(workspace):
    grade(request(workspace, "forks", static=False, cases=("1 batch",)))
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _runs_in(pid, workspace)]
    assert not left


def _runs_in(pid, folder):
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(str(folder))
    except OSError:
        return False


def test_an_honest_file_has_no_findings():
    for path in sorted((ROOT / "kernels" / "ops").glob("*.py")):
        assert read_files(path, ROOT) == ()


@pytest.mark.usefixtures("one_truth")
def test_all_of_a_text_is_accepted_for_code_that_one_trusts_and_behaviour_is_not(workspace):
    verdict = grade(request(workspace, "decoy_functional", allow=("all",), cases=("1 batch",)))
    assert {fault.kind for fault in verdict.faults} == {"computes with PyTorch instead of a kernel"}
    assert "import torch.nn.functional" in verdict.accepted


def test_arguments_of_other_names_go_by_position(workspace):
    asked = request(workspace, "honest", cases=("1 batch",))
    text = Path(asked.op).read_text().replace("def forward(ctx, x):", "def forward(ctx, X, eps):\n        x = X")
    Path(asked.op).write_text(
        text.replace("return softmax_backward(dy, y)\n", "return softmax_backward(dy, y), None\n")
    )
    taken = SOFTMAX.text.replace("def softmax(x)", "def softmax(x, eps)")
    reference = replace(SOFTMAX, text=taken, scalars=(Scalar("eps", "float", 1.0),))
    verdict = grade(replace(asked, reference=reference))
    assert verdict.passed, "\n".join(map(str, verdict.faults))


def test_every_hostile_candidate_is_an_attack_and_the_other_way_round():
    assert {path.stem for path in HOSTILE.glob("*.py")} == {*ATTACKS, "honest"}
