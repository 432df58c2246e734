"""The command line as a person meets it: real processes, their exit codes and what they print."""

import json
import os
import resource
import subprocess
import sys

from pathlib import Path

import pytest

from liger_dev import __version__
from liger_dev import runs
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import append
from liger_dev.bench.csv import read
from liger_dev.bench.samples import Circumstances
from liger_dev.bench.samples import keep
from liger_dev.bench.samples import op_digest
from liger_dev.bench.samples import path_beside
from liger_dev.bench.table import BEGIN
from liger_dev.bench.table import END

REPO = Path(__file__).parents[2]
COMMANDS = "new analyze generate modify validate resume runs show approve reject bench tune plot report check list grade coverage doctor init".split()


def run(*words, cwd, **env):
    command = [sys.executable, "-m", "liger_dev", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "80", **env}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "kernels" / "ops").mkdir(parents=True)
    return tmp_path


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick_and_names_every_command(tmp_path):
    seconds = []
    for _ in range(3):
        start = _cpu_seconds()  # and not the clock's: other processes on the machine are no fault of ours
        done = run("--help", cwd=tmp_path)
        seconds.append(_cpu_seconds() - start)
    assert done.returncode == 0
    listed = done.stdout.partition("Commands:")[2]
    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []
    assert "Exit codes" in done.stdout and max(map(len, done.stdout.splitlines())) <= 80
    assert min(seconds) < 0.3


def test_settings_of_no_kernel_or_without_a_gpu_are_not_measured(workspace):
    done = run("tune", "rms_norm", "--budget", "5", cwd=workspace)
    assert done.returncode == 2 and done.stderr.count("liger-dev: ") == 1 and "  do:    " in done.stderr
    assert run("tune", "rms_norm", "--arch", "sm_1", cwd=workspace).returncode == 2
    assert run("tune", "rms_norm", "--dtype", "int8", cwd=workspace).returncode == 2


def test_help_imports_nothing_heavy(tmp_path):
    code = (
        "import sys\nfrom liger_dev.cli import app\n"
        "try:\n    app(args=['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'triton', 'numpy', 'pydantic', 'rich', 'yaml', 'jinja2', 'anthropic', 'matplotlib'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tmp_path, command):
    done = run(command, "--help", cwd=tmp_path)
    assert done.returncode == 0 and f"Usage: liger-dev {command}" in done.stdout


def test_version(tmp_path):
    assert run("--version", cwd=tmp_path).stdout == f"liger-dev {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["new"], "NAME"),
        (["new", "rms_norm", "--engine", "magic"], "magic"),
        (["new", "rms_norm", "--engine", "claude"], "needs a key for Anthropic"),
        (["new", "rms_norm", "--yes", "--pause"], "exclude each other"),
        (["new", "rms_norn"], "did you mean rms_norm"),
        (["new", "Bad-Name"], "no name for an operation"),
        (["new", "rms_norm", "--from", "gone.py"], "no such file"),
        (["new", "rms_norm", "--shape", "x"], "is no shape"),
        (["new", "rms_norm", "--root", "nowhere"], "no such folder"),
        (["generate", "rms_norm"], "there is no profiles/rms_norm.yaml"),
        (["validate"], "no kernel to validate"),
        (["resume", "2026"], "there is no run '2026'"),
        (["show"], "no run to show"),
        (["show", "2026"], "there is no run '2026'"),
        (["approve", "2026"], "there is no run '2026'"),
        (["reject", "2026", "--reason", "no"], "there is no run '2026'"),
        (["reject", "2026"], "--reason"),
        (["check", "rms_norm"], "there is no kernel 'rms_norm' here"),
    ],
)
def test_bad_input_ends_with_2_and_says_what_is_wrong(workspace, words, message):
    done = run(*words, cwd=workspace)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
    assert not (workspace / ".liger-dev" / "runs").exists()


def test_outside_a_workspace_the_way_to_one_is_named(tmp_path):
    done = run("runs", cwd=tmp_path)
    assert done.returncode == 2 and "liger-dev init" in done.stderr


def test_debug_shows_the_traceback_of_an_error_wherever_it_stands(workspace):
    for words in (["--debug", "new", "nope"], ["new", "nope", "--debug"]):
        done = run(*words, cwd=workspace)
        assert done.returncode == 2 and "Traceback" in done.stderr and "BadInput" in done.stderr


def test_a_bug_is_one_line_and_exit_code_2(workspace):
    bug = "import liger_dev.cli as c, liger_dev.sources as s\ns.catalog_names = lambda: 1 / 0\nc.main()"
    command = [sys.executable, "-c", bug, "list"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a bug of liger-dev: ZeroDivisionError" in done.stderr and "--debug" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_marks_what_the_workspace_has(workspace):
    (workspace / "profiles").mkdir()
    (workspace / "profiles" / "rms_norm.yaml").write_text("")
    (workspace / "profiles" / "own_op.yaml").write_text("")
    done = run("list", cwd=workspace)
    assert done.returncode == 0
    marked = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("*")]
    assert marked == ["own_op", "rms_norm"] and "  softmax " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_list_works_outside_a_workspace(tmp_path):
    done = run("list", cwd=tmp_path)
    assert done.returncode == 0 and "rms_norm" in done.stdout and "*" not in done.stdout.split("rms_norm")[0]


def test_list_shows_the_compilers_rows(tmp_path):
    lines = run("list", "--ops", cwd=tmp_path).stdout.splitlines()
    named = " ".join(lines).split()
    assert {"add", "binary_cross_entropy_with_logits", "linalg_vector_norm"} <= set(named)
    assert len(named) == len(set(named)) > 150 and max(map(len, lines)) <= 80


def test_show_schema_prints_the_profiles_json_schema(tmp_path):
    done = run("show", "--schema", cwd=tmp_path)
    assert done.returncode == 0
    assert "gradient_formulas" in json.loads(done.stdout)["properties"]


def test_runs_in_a_workspace_without_any(workspace):
    done = run("runs", cwd=workspace)
    assert done.returncode == 0 and "no runs yet" in done.stdout


def test_show_prints_a_runs_state_and_events(workspace):
    made = runs.create_run(workspace, {"command": "new", "name": "relu"})
    made.record({"event": "output", "stage": "analyze", "key": "k", "mark": "0123456789abcdef"})
    done = run("show", made.id[:20], cwd=workspace)
    assert done.returncode == 0
    assert "request  new relu" in done.stdout and "output      analyze, (01234567)" in done.stdout
    missing = run("show", made.id, "--stage", "validate", cwd=workspace)
    assert missing.returncode == 2 and "it has: analyze" in missing.stderr


@pytest.mark.parametrize(("command", "message"), [("plot", "no measurements of 'relu'"), ("bench", "relu")])
def test_what_was_never_measured_or_made_can_be_neither_drawn_nor_measured(workspace, command, message):
    done = run(command, "relu", cwd=workspace)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def measured(workspace):
    """A workspace with three rows of measurements, a report and a README."""
    fixed = ("H", "hidden size", 4096, 0.04, 0.04, 0.04, "{}", "a GPU", "2026-01-01 00:00:00", "0")
    rows = [
        Measurement("relu", "liger", "forward", metric, unit, *fixed)
        for metric, unit in (("device_time", "ms"), ("bandwidth_share", "1"), ("memory", "MB"))
    ]
    append(workspace / "benchmark" / "data" / "all_benchmark_data.csv", rows)
    (workspace / "benchmark" / "results").mkdir()
    (workspace / "benchmark" / "results" / "relu.md").write_text("# Results: relu\n\n**PASSED**: all\n\n## Plots\n")
    (workspace / "README.md").write_text(f"{BEGIN}\n{END}\n")
    return workspace


def test_plot_without_names_draws_every_kernel_and_the_roofline(measured):
    done = run("plot", cwd=measured)
    assert done.returncode == 0, done.stderr
    assert "plot relu: 1 of 2" in done.stderr and "roofline roofline: 2 of 2" in done.stderr
    drawn = {path.name for path in (measured / "benchmark" / "visualizations").iterdir()}
    assert drawn == {
        "relu_device_time_forward.png",
        "relu_bandwidth_share_forward.png",
        "relu_memory_forward.png",
        "roofline.png",
    }


def test_report_makes_the_page_again_and_writes_the_tables(measured):
    done = run("report", "relu", "--table", "README.md", "--full-table", "benchmark/TABLE.md", cwd=measured)
    assert done.returncode == 0, done.stderr
    assert "| relu | H=4096 | 0.040 / – / – |" in (measured / "README.md").read_text()
    assert "| relu | H=4096 | forward | 0.0400 |" in (measured / "benchmark" / "TABLE.md").read_text()
    assert "<h1>Results: relu</h1>" in (measured / "benchmark" / "results" / "relu.html").read_text()
    assert run("report", "gelu", cwd=measured).returncode == run("report", cwd=measured).returncode == 2


def test_tables_mark_what_was_measured_of_another_op_file(measured):
    op, data = measured / "kernels" / "ops" / "relu.py", measured / "benchmark" / "data" / "all_benchmark_data.csv"
    op.parent.mkdir(parents=True, exist_ok=True)
    op.write_text("y = x\n")
    rows = read(data)
    keep(path_beside(data, "relu"), rows, [[0.04] * 20 for _ in rows], Circumstances(op=op_digest(op.read_text())))
    marked = []
    for text in ("y = x\n", "y = -x\n"):
        op.write_text(text)
        done = run("report", "--table", "README.md", "--full-table", "benchmark/TABLE.md", cwd=measured)
        assert done.returncode == 0, done.stderr
        marked.append(["‡" in (measured / name).read_text() for name in ("README.md", "benchmark/TABLE.md")])
    assert marked == [[False, False], [True, True]]


def test_a_loss_is_accepted_by_name_or_not_at_all(workspace):
    done = run("validate", "relu", "--accept", "relu:beauty", cwd=workspace)
    assert done.returncode == 2 and "write NAME:speed or NAME:memory" in done.stderr


def test_one_kernel_that_cannot_be_judged_does_not_stop_the_others(workspace):
    done = run("validate", "relu", "gelu", cwd=workspace)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "0 of 2 passed; failed: relu, gelu"
    assert "gelu: the kernel 'gelu' has no file kernels/ops/gelu.py" in done.stdout


def test_ci_annotates_kernels_that_cannot_be_judged(workspace):
    done = run("validate", "relu", "gelu", "--ci", "--junit", "verdicts.xml", cwd=workspace)
    assert done.returncode == 1
    assert done.stdout.count("::error file=kernels/ops/") == 2
    assert (workspace / "verdicts.xml").read_text().count("<failure message=\"the kernel 'relu' has no file") == 1


def test_doctor_says_what_works_and_never_the_key(tmp_path):
    done = run("doctor", cwd=tmp_path, ANTHROPIC_API_KEY="not-to-be-printed")
    assert done.returncode == 0 and "liger-dev can run here" in done.stdout
    for subject in ("python", "torch", "triton", "numpy", "GPU", "ncu", "ruff", "bubblewrap", "transformers"):
        assert f" {subject} " in done.stdout
    assert "not-to-be-printed" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_init_makes_a_workspace_that_is_found_from_below_and_can_be_repeated(tmp_path):
    first = run("init", "lib", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert (tmp_path / "lib" / "kernels" / "ops").is_dir()
    files = {path: path.read_bytes() for path in (tmp_path / "lib" / "kernels").rglob("*") if path.is_file()}
    assert run("runs", cwd=tmp_path / "lib" / "kernels" / "ops").returncode == 0
    assert run("init", cwd=tmp_path / "lib").returncode == 0
    assert files == {path: path.read_bytes() for path in (tmp_path / "lib" / "kernels").rglob("*") if path.is_file()}


def test_init_where_a_file_is_in_the_way(tmp_path):
    (tmp_path / "taken").write_text("")
    done = run("init", "taken", cwd=tmp_path)
    assert done.returncode == 2 and "can't be made" in done.stderr
