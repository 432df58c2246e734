"""The sandbox against real children that hang, multiply, outlive, spy, hoard and flood."""

import os
import signal
import subprocess
import sys
import textwrap
import time

from pathlib import Path

import pytest

from liger_dev import sandbox
from liger_dev.sandbox import Limits
from liger_dev.sandbox import run_child

ROOT = Path(__file__).parents[2]


def python(code, scratch, **options):
    return run_child([sys.executable, "-c", textwrap.dedent(code)], scratch=scratch, **options)


def is_alive(pid):
    """Whether a process runs: one that ended but was not reaped does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_ended(pid):
    deadline = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


@pytest.fixture
def unfenced(monkeypatch):
    """For what must hold without bubblewrap; the pids that a child prints are then those seen here."""
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: "")


def test_output_code_and_lines_come_back(tmp_path):
    lines = []
    done = python(
        "import sys; print('one'); print(sys.stdin.read()); print('bad', file=sys.stderr); sys.exit(3)",
        tmp_path,
        stdin="two",
        on_line=lines.append,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\ntwo\n", "bad\n")
    assert lines == ["one", "two"] and not done.timed_out


def test_large_input_reaches_a_child_that_answers_while_it_reads(tmp_path):
    text = "x" * 3_000_000
    done = python("import sys\nfor line in sys.stdin: sys.stdout.write(line)", tmp_path, stdin=text)
    assert done.stdout == text


def test_a_child_that_reads_no_input_is_no_error(tmp_path):
    assert python("pass", tmp_path, stdin="x" * 3_000_000).returncode == 0


def test_a_signal_is_a_negative_code(tmp_path, unfenced):
    assert python("import os; os.kill(os.getpid(), 9)", tmp_path).returncode == -signal.SIGKILL
    assert python("import os; os.abort()", tmp_path).returncode == -signal.SIGABRT


def test_an_unknown_command_is_127(tmp_path, unfenced):
    done = run_child(["no-such-command"], scratch=tmp_path)
    assert done.returncode == 127 and "no-such-command" in done.stderr


def test_a_hanging_child_is_ended(tmp_path):
    done = python(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
        tmp_path,
        limits=Limits(seconds=1),
    )
    assert done.timed_out and done.seconds < 5 and done.stdout == "up\n" and done.returncode != 0


def test_a_child_that_closed_its_output_is_still_timed(tmp_path):
    done = python("import os, time; os.close(1); os.close(2); time.sleep(60)", tmp_path, limits=Limits(seconds=0.5))
    assert done.timed_out and done.seconds < 5


OUTLIVES = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()          # leaves the process group
        if os.fork() == 0:   # and its parent
            print(os.getpid(), flush=True)
            time.sleep(60)
        os._exit(0)
    time.sleep({seconds})
"""


@pytest.mark.parametrize("seconds", [0.2, 60])
def test_a_grandchild_that_left_the_group_does_not_outlive(tmp_path, unfenced, seconds):
    done = python(OUTLIVES.format(seconds=seconds), tmp_path, limits=Limits(seconds=1))
    assert done.timed_out is (seconds > 1) and done.seconds < 5
    assert_ended(int(done.stdout))


def test_an_error_of_the_parent_ends_the_child(tmp_path, unfenced):
    pids = []

    def fail(line):
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        python("import os, time; print(os.getpid(), flush=True); time.sleep(60)", tmp_path, on_line=fail)
    assert_ended(pids[0])


def test_killing_the_parent_ends_child_and_grandchild(tmp_path):
    child = "import os; print(os.getpid(), flush=True)\n" + textwrap.dedent(OUTLIVES.format(seconds=60))
    parent = f"""
        import sys
        from pathlib import Path
        from liger_dev import sandbox
        sandbox.bubblewrap = lambda: ""
        sandbox.run_child(
            [sys.executable, "-c", {child!r}], scratch=Path({str(tmp_path)!r}),
            on_line=lambda line: print(line, flush=True),
        )
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        pids = [int(process.stdout.readline()) for _ in range(2)]
        assert all(is_alive(pid) for pid in pids)
        process.kill()
    for pid in pids:
        assert_ended(pid)


def test_secrets_stay_outside(tmp_path, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "HF_TOKEN", "TRITON_SECRET", "SOMETHING"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    done = python("import os, json; print(json.dumps(dict(os.environ)))", tmp_path, env={"MORE": "yes"})
    assert "hunter2" not in done.stdout and '"MORE": "yes"' in done.stdout and '"TRITON_INTERPRET": "1"' in done.stdout
    assert f'"HOME": "{tmp_path}"' in done.stdout


def test_the_cache_is_in_scratch_unless_given(tmp_path):
    show = "import os; print(os.environ['TRITON_CACHE_DIR'])"
    assert python(show, tmp_path).stdout.strip().startswith(str(tmp_path))
    assert python(show, tmp_path, env={"TRITON_CACHE_DIR": "/elsewhere"}).stdout.strip() == "/elsewhere"


def test_memory_is_limited(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = python("x = bytearray(2 << 30)", tmp_path, limits=Limits(memory_mb=512))
    assert done.returncode == 1 and "MemoryError" in done.stderr
    assert any(line.startswith("memory: 512 MB") for line in done.protection)


def test_memory_is_not_limited_beside_a_gpu_and_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(sandbox, "gpu_devices", lambda: ["/dev/null"])
    done = python("x = bytearray(600 << 20); print('allocated')", tmp_path, limits=Limits(memory_mb=512))
    assert done.stdout == "allocated\n"
    assert any(line.startswith("not in force: a memory limit") for line in done.protection)


def test_hidden_devices_are_asked_for_without_cuda_under_a_memory_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "gpu_devices", lambda: ["/dev/null"])
    show = "import os; print(os.environ.get('PYTORCH_NVML_BASED_CUDA_CHECK'))"
    assert python(show, tmp_path, env={"CUDA_VISIBLE_DEVICES": ""}).stdout == "1\n"
    assert python(show, tmp_path, env={"CUDA_VISIBLE_DEVICES": "0"}).stdout == "None\n"


def test_a_file_can_not_grow_without_end(tmp_path):
    done = python(
        "f = open('big', 'wb', buffering=0)\nfor _ in range(8): f.write(bytes(1 << 20))",
        tmp_path,
        limits=Limits(file_mb=2),
    )
    assert done.returncode == 1 and "File too large" in done.stderr
    assert (tmp_path / "big").stat().st_size == 2 << 20


@pytest.mark.skipif(os.geteuid() == 0, reason="root is exempt from RLIMIT_NPROC")
def test_processes_are_limited(tmp_path):
    code = "import os, time\nfor _ in range(200):\n    if os.fork() == 0: time.sleep(30)\n"
    assert "BlockingIOError" in python(code, tmp_path, limits=Limits(processes=20)).stderr


def test_a_flood_of_output_is_bounded(tmp_path):
    lines = []
    done = python(
        "import sys\nfor _ in range(64): sys.stdout.write('x' * (1 << 20))\nprint('end')",
        tmp_path,
        limits=Limits(output_mb=1),
        on_line=lines.append,
    )
    assert done.returncode == 0 and done.stdout.endswith("xend\n") and "were dropped" in done.stdout[:60]
    assert len(done.stdout) < 2 << 20 and max(map(len, lines)) < 1 << 20


ESCAPE = """
    import socket
    from pathlib import Path
    try:
        Path({outside!r}).write_text("escaped")
        print("wrote")
    except OSError as error:
        print("no file:", error.strerror)
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=2)
        print("connected")
    except OSError as error:
        print("no network:", error.strerror)
    Path("inside").write_text("ok")
    Path({granted!r}, "granted").write_text("ok")
"""


def test_files_and_network_are_fenced_or_said_not_to_be(tmp_path):
    import socket

    scratch, granted, outside = tmp_path / "scratch", tmp_path / "granted", tmp_path / "outside"
    scratch.mkdir()
    granted.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = ESCAPE.format(outside=str(outside), port=server.getsockname()[1], granted=str(granted))
        done = python(code, scratch, writable=[granted])
    assert done.returncode == 0, done.stderr
    assert (scratch / "inside").exists() and (granted / "granted").exists()
    if sandbox.bubblewrap():
        assert "no file: Read-only file system" in done.stdout and "no network" in done.stdout
        assert not outside.exists() and "network: none" in done.protection
    else:
        assert any(line.startswith("not in force: isolation of files and network") for line in done.protection)


def test_known_secrets_are_hidden_under_bubblewrap(tmp_path, monkeypatch):
    if not sandbox.bubblewrap():
        pytest.skip("bubblewrap is not installed, or may not run here")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("hunter2")
    (home / ".netrc").write_text("hunter2")
    monkeypatch.setenv("HOME", str(home))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = run_child(["sh", "-c", f"cat {home}/.ssh/id {home}/.netrc; ls {home}"], scratch=scratch)
    assert "hunter2" not in done.stdout
