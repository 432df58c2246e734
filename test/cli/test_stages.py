"""What the real stages show, let a reviewer edit and write, and what each of their outputs depends on."""

from dataclasses import replace

import pytest

from liger_dev import requests
from liger_dev import sources
from liger_dev import stages
from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.errors import ProfileRefused
from liger_dev.errors import Unsupported
from liger_dev.pipeline import Context
from liger_dev.profile import parse_profile
from liger_dev.records import Change
from liger_dev.records import ChangeSet
from liger_dev.validator import Report

YES = {"stage": "analyze", "how": "--yes", "reason": ""}
BY_A_PERSON = {"stage": "generate", "how": "approve command", "reason": "compared\nwith the paper"}


def _context(root, **options) -> Context:
    found = sources.resolve("relu_squared", None, shapes={}, init=[], cwd=root)
    request = requests.new_request(
        "new", "relu_squared", found, review="yes", overwrite=False, benchmark=True, ncu=False, **options
    )
    return Context(root, "run", request, print)


@pytest.fixture(scope="module")
def analyzed(tmp_path_factory):
    context = _context(tmp_path_factory.mktemp("workspace"))
    return context, stages.ANALYZE.make(context)


def test_the_analyzers_review_shows_reference_profile_closest_kernel_and_doubts(analyzed):
    views = {view.title: view for view in stages.ANALYZE.views(*analyzed, False)}
    assert views["kernels/reference/relu_squared.py"].language == "python"
    assert "operation_name: relu_squared" in views["profiles/relu_squared.yaml"].text
    about = views["What the analyzer found"].text
    assert "closest existing kernel: " in about and "tier: 1 (element-wise)" in about and "assumptions" in about


def test_an_edited_profile_is_checked_against_schema_and_generator(analyzed):
    context, output = analyzed
    path = "profiles/relu_squared.yaml"
    text = stages.ANALYZE.texts(context, output)[path]
    name = "functional_name: liger_relu_squared"
    assert name in text
    revised = stages.ANALYZE.revise(context, output, path, text.replace(name, "functional_name: liger_relu2"))
    edited = stages.ANALYZE.texts(context, revised)
    assert parse_profile(edited[path], path).functional_name == "liger_relu2"
    with pytest.raises(BadInput, match="tier"):
        stages.ANALYZE.revise(context, output, path, text.replace("tier: 1\n", "tier: 7\n"))
    with pytest.raises(ProfileRefused):
        stages.ANALYZE.revise(context, output, path, text.replace("tier: 1\n", "tier: 2\n"))


def test_an_edited_reference_is_analyzed_again(analyzed):
    context, output = analyzed
    path = "kernels/reference/relu_squared.py"
    text = stages.ANALYZE.texts(context, output)[path]
    last = text.rstrip().rpartition("\n")[2]
    assert "return" in last
    cubed = stages.ANALYZE.revise(context, output, path, text.replace(last, f"{last} * torch.relu(x)"))
    assert "edited at the review" in cubed["profile"]["provenance"]["source"]
    assert cubed["profile"]["gradient_formulas"] != output["profile"]["gradient_formulas"]
    with pytest.raises((BadInput, Unsupported)):
        stages.ANALYZE.revise(context, output, path, text.replace(last, "    return torch.linalg.inv(x)"))


def test_analyze_alone_writes_what_generate_alone_reads(analyzed, tmp_path):
    context, output = analyzed
    (alone,) = stages.stages_of({**context.request, "command": "analyze"})
    changes = alone.changes(replace(context, root=tmp_path), output)
    workspace.apply(tmp_path, changes, "run")
    request = requests.generate_request(tmp_path, "relu_squared", review="yes", overwrite=False)
    again = replace(context, root=tmp_path, request=request)
    read, _ = stages.stages_of(request)
    reread = read.make(again)
    assert not read.reviewed
    assert (reread["reference"]["text"], reread["profile"]) == (output["reference"]["text"], output["profile"])


def _changes(root) -> ChangeSet:
    return ChangeSet(
        (
            Change("profiles/relu_squared.yaml", "a: 1\n", ""),
            Change("kernels/ops/relu_squared.py", "a = 1\nb = 2", ""),
            Change("kernels/functional.py", "a = 1\nb = 3\n", workspace.base_of(root, "kernels/functional.py")),
            Change("kernels/same.py", "a = 1\n", workspace.base_of(root, "kernels/same.py")),
        )
    )


@pytest.fixture
def written(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "functional.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "kernels" / "same.py").write_text("a = 1\n")
    return _context(tmp_path), _changes(tmp_path).to_json()


def test_the_generators_review_shows_files_and_their_diff(written):
    files, diff = stages.GENERATE.views(*written, False)
    assert files.text.splitlines() == [
        "new +1 -0           profiles/relu_squared.yaml",
        "new +2 -0           kernels/ops/relu_squared.py",
        "changed +1 -1       kernels/functional.py",
        "in place            kernels/same.py",
    ]
    assert "-b = 2\n+b = 3\n" in diff.text and "+b = 2\n\\ No newline at end of file\n" in diff.text
    assert "--- /dev/null\n+++ b/kernels/ops/relu_squared.py\n" in diff.text
    assert stages.GENERATE.views(*written, True) == [files]


def test_a_generated_file_can_be_edited_and_must_parse(written):
    texts = stages.GENERATE.texts(*written)
    assert "kernels/ops/relu_squared.py" in texts and "profiles/relu_squared.yaml" not in texts
    revised = stages.GENERATE.revise(*written, "kernels/ops/relu_squared.py", "a = 2\n")
    assert stages.GENERATE.texts(written[0], revised) == {**texts, "kernels/ops/relu_squared.py": "a = 2\n"}
    with pytest.raises(BadInput, match="does not parse"):
        stages.GENERATE.revise(*written, "kernels/ops/relu_squared.py", "a = (\n")


def test_the_report_and_its_file_say_who_approved_what():
    report = Report(True, "# Results\n", ChangeSet((Change("r.md", "# Results\n", ""), Change("op.py", "x", ""))))
    told = stages.report.with_reviews(report, (YES, BY_A_PERSON))
    assert told.markdown == (
        "# Results\n\n## Reviews\n\n- analyze: approved by `--yes`; nobody looked at it\n"
        "- generate: approved by a reviewer: compared with the paper\n"
    )
    assert [change.content for change in told.changes.changes] == [told.markdown, "x"]
    assert stages.report.with_reviews(report, ()) == report


def test_a_report_that_did_not_pass_is_a_failure():
    assert stages.VALIDATE.failure(Report(False, "", ChangeSet(())).to_json())
    assert not stages.VALIDATE.failure(Report(True, "", ChangeSet(())).to_json())


def test_what_the_validation_depends_on(tmp_path):
    context = replace(_context(tmp_path), outputs={"generate": {"changes": []}})
    other = replace(context, outputs={"generate": {"changes": [1]}})
    keys = [
        stages.VALIDATE.inputs(each)
        for each in (context, other, replace(context, reviews=(YES,)), _context(tmp_path, extra=1))
    ]
    assert all(one != two for number, one in enumerate(keys) for two in keys[:number])
    assert stages.VALIDATE.inputs(context) == stages.VALIDATE.inputs(replace(context, root=tmp_path / "elsewhere"))


def test_a_run_of_a_newer_version_is_refused():
    with pytest.raises(BadInput, match="'transmogrify'"):
        stages.stages_of({"command": "transmogrify"})
