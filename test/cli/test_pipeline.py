"""The driver with small stages: what it makes, what it takes from the run, and what reviews, kills and edits do to it."""

import os
import signal

from dataclasses import replace

import pytest

from small_stages import STAGES
from small_stages import Driver
from small_stages import MortalRun
from small_stages import tree

from liger_dev import history
from liger_dev import runs
from liger_dev import workspace
from liger_dev.errors import BadInput
from liger_dev.errors import Paused
from liger_dev.errors import StaleWorkspace
from liger_dev.pipeline import Decision
from liger_dev.records import ChangeSet

ALL = ["analyzing", "generating", "validating"]
PAUSE = Decision("pause")


def test_a_run_makes_each_stage_once_and_writes_its_files(tmp_path):
    driver = Driver(tmp_path)
    run = driver.start("relu")
    outcome = driver.drive(run)
    assert outcome.failure == "" and outcome.stage.name == "validate"
    assert driver.made == ALL and driver.asked == ["analyze", "generate", "validate"]
    assert tree(tmp_path) == {
        "kernels/RELU.txt": b"RELU",
        "kernels/exports.txt": b"RELU\n",
        "results/RELU.md": b"RELU passes\nanalyze: review analyze is right\ngenerate: review generate is right\n",
    }
    assert run.status().state == "passed"


def test_driving_a_finished_run_again_makes_asks_and_writes_nothing(tmp_path):
    driver = Driver(tmp_path)
    run = driver.start("relu")
    first = driver.drive(run)
    before = tree(tmp_path)
    events = run.events()
    (tmp_path / "kernels" / "RELU.txt").write_text("edited by hand afterwards")
    again = Driver(tmp_path)
    assert again.drive(run).output == first.output
    assert run.events() == events
    assert (again.made, again.asked) == ([], [])
    assert {**tree(tmp_path), "kernels/RELU.txt": b"RELU"} == before
    assert tree(tmp_path)["kernels/RELU.txt"] == b"edited by hand afterwards"


def _count_of_writes(folder) -> int:
    driver = Driver(folder)
    run = driver.start("relu")
    mortal = MortalRun(run.root, run.id)
    driver.drive(mortal)
    return len(mortal.steps)


def _drive_in_a_process_that_dies(driver, run, dies_at) -> int:
    child = os.fork()
    if child == 0:
        driver.drive(MortalRun(run.root, run.id, dies_at))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_kill_at_any_write_and_a_resume_give_the_undisturbed_files_and_report(tmp_path):
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    count = _count_of_writes(undisturbed)
    report = runs.list_runs(undisturbed)[0]
    expected = Driver(undisturbed).drive(report).output
    assert count > 20
    for dies_at in range(count):
        folder = tmp_path / str(dies_at)
        folder.mkdir()
        driver = Driver(folder)
        run = driver.start("relu")
        assert _drive_in_a_process_that_dies(driver, run, dies_at) == -signal.SIGKILL
        assert driver.drive(run).output == expected, dies_at
        assert tree(folder) == tree(undisturbed), dies_at


def test_a_kill_in_the_middle_of_a_stage_runs_that_stage_again(tmp_path):
    def die(context):
        os.kill(os.getpid(), signal.SIGKILL)

    driver = Driver(tmp_path)
    run = driver.start("relu")
    dying = Driver(tmp_path, (*STAGES[:2], replace(STAGES[2], make=die)))
    assert _drive_in_a_process_that_dies(dying, run, -1) == -signal.SIGKILL
    assert run.status().state == "interrupted"
    driver.drive(run)
    assert driver.made == ["validating"] and driver.asked == ["validate"]


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path):
    def interrupt(context):
        raise KeyboardInterrupt

    run = Driver(tmp_path).start("relu")
    with pytest.raises(KeyboardInterrupt):
        Driver(tmp_path, (STAGES[0], replace(STAGES[1], make=interrupt), STAGES[2])).drive(run)
    assert (run.status().state, run.status().reason) == ("interrupted", "by the keyboard")
    assert Driver(tmp_path).drive(run).failure == ""


def test_pause_approve_and_resume_take_one_stage_after_the_other(tmp_path):
    run = Driver(tmp_path).start("relu")
    for stage, files in (("analyze", 0), ("generate", 0), ("validate", 2)):
        with pytest.raises(Paused, match=f"waits for the review of stage {stage}"):
            Driver(tmp_path, answers={stage: [PAUSE]}).drive(run)
        assert run.status().state == "paused"
        assert len(tree(tmp_path)) == files
        assert history.approve(run, "", "seen") == stage
    driver = Driver(tmp_path)
    assert driver.drive(run).failure == ""
    assert driver.asked == []
    assert tree(tmp_path)["results/RELU.md"].endswith(b"generate: approve command seen\n")
    approvals = [event for event in run.events() if event["event"] == "approved"]
    assert {"stage", "mark", "time", "reason", "user", "how"} <= approvals[0].keys()


def test_only_what_waits_can_be_approved(tmp_path):
    run = Driver(tmp_path).start("relu")
    with pytest.raises(BadInput, match="has no output yet"):
        history.approve(run, "", "")
    with pytest.raises(Paused):
        Driver(tmp_path, answers={"analyze": [PAUSE]}).drive(run)
    with pytest.raises(BadInput, match="stage generate .* has no output yet"):
        history.approve(run, "generate", "")
    history.approve(run, "analyze", "")
    with pytest.raises(BadInput, match="does not wait"):
        history.approve(run, "analyze", "")


def test_reject_after_the_files_were_written_takes_them_back_and_ends_the_run(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "exports.txt").write_text("GELU\n")
    before = tree(tmp_path)
    driver = Driver(tmp_path)
    run = driver.start("relu")
    driver.drive(run)
    assert len(tree(tmp_path)) == 3
    stage, files = history.reject(tmp_path, run, "generate", "too slow")
    assert stage == "generate" and set(files) == {"kernels/RELU.txt", "kernels/exports.txt", "results/RELU.md"}
    assert tree(tmp_path) == before
    assert run.status().state == "rejected"
    with pytest.raises(BadInput, match="was rejected: too slow"):
        driver.drive(run)
    assert tree(tmp_path) == before


def test_a_withdrawn_rejection_writes_the_same_files_again(tmp_path):
    driver = Driver(tmp_path)
    run = driver.start("relu")
    driver.drive(run)
    written = tree(tmp_path)
    history.reject(tmp_path, run, "validate", "a mistake")
    assert tree(tmp_path) == {}
    history.approve(run, "validate", "it was none")
    assert driver.drive(run).failure == ""
    assert tree(tmp_path) == written and driver.made == ALL


def test_a_rejected_run_writes_nothing_again_whichever_stage_was_rejected(tmp_path):
    for stage in ("analyze", "generate", "validate"):
        run = Driver(tmp_path).start("relu")
        Driver(tmp_path).drive(run)
        history.reject(tmp_path, run, stage, "no")
        written = []
        with pytest.raises(BadInput, match=f"stage {stage} .* was rejected: no"):
            Driver(tmp_path, tuple(replace(s, changes=lambda *_: written.append(1)) for s in STAGES)).drive(run)
        assert written == [] and tree(tmp_path) == {}


def test_the_report_of_a_failing_kernel_can_be_rejected_and_its_rejection_withdrawn(tmp_path):
    run = Driver(tmp_path).start("fail")
    Driver(tmp_path).drive(run)
    history.reject(tmp_path, run, "", "away with it")
    assert tree(tmp_path) == {}
    with pytest.raises(BadInput, match="away with it"):
        Driver(tmp_path).drive(run)
    history.approve(run, "", "keep it")
    assert Driver(tmp_path).drive(run).failure and tree(tmp_path)["results/FAIL.md"]


def test_a_rejected_stage_can_be_edited_instead(tmp_path):
    run = Driver(tmp_path).start("relu")
    Driver(tmp_path).drive(run)
    history.reject(tmp_path, run, "analyze", "it should be silu")
    driver = Driver(tmp_path, answers={"analyze": [Decision("edit", {"text": "SILU"})]})
    assert driver.drive(run, again="analyze").failure == ""
    assert set(tree(tmp_path)) == {"kernels/SILU.txt", "kernels/exports.txt", "results/SILU.md"}


def test_a_kill_between_rejecting_and_undoing_is_finished_by_the_next_command(tmp_path, monkeypatch):
    driver = Driver(tmp_path)
    run = driver.start("relu")
    driver.drive(run)
    run.record({**history.approval("validate", _mark(run, "validate"), "reject command", "no"), "event": "rejected"})
    with pytest.raises(BadInput, match="was rejected"):
        driver.drive(run)
    assert tree(tmp_path) == {}
    assert history.withdraw(tmp_path, run) == []


def _mark(run, stage) -> str:
    return history.latest_output(run.events(), stage)["mark"]


def test_an_edit_is_reviewed_again_and_changes_what_follows(tmp_path):
    driver = Driver(tmp_path, answers={"analyze": [Decision("edit", {"text": "SILU"})]})
    run = driver.start("relu")
    driver.drive(run)
    assert driver.asked == ["analyze", "analyze", "generate", "validate"]
    assert driver.made == ALL
    assert set(tree(tmp_path)) == {"kernels/SILU.txt", "kernels/exports.txt", "results/SILU.md"}


def test_an_edit_survives_a_pause(tmp_path):
    run = Driver(tmp_path).start("relu")
    with pytest.raises(Paused):
        Driver(tmp_path, answers={"analyze": [Decision("edit", {"text": "SILU"}), PAUSE]}).drive(run)
    history.approve(run, "", "")
    driver = Driver(tmp_path)
    assert driver.drive(run).output["report"].startswith("SILU passes")
    assert driver.made == ALL[1:]


def test_a_later_edit_invalidates_what_depends_on_it_and_nothing_else(tmp_path):
    driver = Driver(tmp_path)
    run = driver.start("relu")
    driver.drive(run)
    edited = ChangeSet.from_json(run.load(history.latest_output(run.events(), "generate")["key"]))
    kernel = replace(edited.changes[0], content="RELU, edited", base=workspace.base_of(tmp_path, "kernels/RELU.txt"))
    second = Driver(tmp_path, answers={"generate": [Decision("edit", ChangeSet((kernel,)).to_json())]})
    second.drive(run, again="generate")
    assert second.asked == ["generate", "generate", "validate"]
    assert second.made == ["validating"]
    assert tree(tmp_path)["results/RELU.md"].startswith(b"RELU, edited passes")


def test_a_review_of_a_stage_again_that_changes_nothing_makes_nothing(tmp_path):
    run = Driver(tmp_path).start("relu")
    Driver(tmp_path).drive(run)
    driver = Driver(tmp_path)
    driver.drive(run, again="analyze")
    assert driver.asked == ["analyze"] and driver.made == []


def test_a_failing_kernel_ends_the_run_without_a_review_and_keeps_its_report(tmp_path):
    driver = Driver(tmp_path)
    run = driver.start("fail")
    assert driver.drive(run).failure == "the kernel fails"
    assert driver.asked == ["analyze", "generate"]
    assert tree(tmp_path)["results/FAIL.md"].startswith(b"FAIL fails")
    assert run.status().state == "failed"


class _Overtaken(Driver):
    """Another process writes the shared file while the reviewer of `generate` looks, `times` times."""

    times = 1

    def _review(self, stage, context, output):
        if stage.name == "generate" and self.times:
            self.times -= 1
            shared = self.root / "kernels" / "exports.txt"
            shared.parent.mkdir(exist_ok=True)
            shared.write_text(f"{'X' * (self.times + 1)}\n")
        return super()._review(stage, context, output)


def test_files_that_changed_under_a_review_are_rendered_and_reviewed_again(tmp_path):
    driver = _Overtaken(tmp_path)
    driver.drive(driver.start("relu"))
    assert driver.asked == ["analyze", "generate", "generate", "validate"]
    assert tree(tmp_path)["kernels/exports.txt"] == b"X\nRELU\n"


def test_a_workspace_that_never_rests_is_an_error_and_the_run_can_still_be_resumed(tmp_path):
    driver = _Overtaken(tmp_path)
    driver.times = 3
    run = driver.start("relu")
    with pytest.raises(StaleWorkspace):
        driver.drive(run)
    assert set(tree(tmp_path)) == {"kernels/exports.txt"}
    assert "changed on disk" in run.status().reason
    assert Driver(tmp_path).drive(run).failure == ""


def test_a_stage_that_refuses_is_named_in_the_status_and_runs_again(tmp_path):
    def refuse(context):
        raise BadInput("the op is not supported")

    run = Driver(tmp_path).start("relu")
    with pytest.raises(BadInput):
        Driver(tmp_path, (STAGES[0], replace(STAGES[1], make=refuse), STAGES[2])).drive(run)
    assert (run.status().stage, run.status().reason) == ("generate", "the op is not supported")
    assert Driver(tmp_path).drive(run).failure == ""


def test_two_drivers_of_one_run_exclude_each_other(tmp_path):
    driver = Driver(tmp_path)
    run = driver.start("relu")
    with run.lock():
        child = os.fork()
        if child == 0:
            try:
                driver.drive(run)
            except BadInput:
                os._exit(2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
