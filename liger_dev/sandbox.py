"""Running code that is not ours: takes a command, gives what it printed, how it ended and what protected us meanwhile."""

import ctypes
import functools
import glob
import json
import os
import selectors
import shutil
import signal
import site
import subprocess
import sys
import time

from collections import deque
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import IO

_SUPERVISOR = str(Path(__file__).with_name("sandbox_supervisor.py"))
_ALLOWED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
_ALLOWED_PREFIXES = ("CUDA_", "TRITON_", "HIP_", "ROCR_", "NVIDIA_")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
_HIDDEN = (".ssh", ".aws", ".gnupg", ".netrc", ".config", ".docker", ".kube", ".git-credentials", ".pypirc",
           ".cache/huggingface/token", ".huggingface", ".anthropic", ".bash_history")  # fmt: skip
_MB = 1 << 20
_LONGEST_LINE = 64 * 1024
_GRACE = 7.0


@dataclass(frozen=True)
class Limits:
    """What a child may use: wall-clock seconds, memory, size of one file, processes beside ours, kept output."""

    seconds: float = 120
    memory_mb: int = 8192
    file_mb: int = 512
    processes: int = 512
    output_mb: int = 4


@dataclass(frozen=True)
class Completed:
    """How a child ended. `returncode` is negative after a signal; the output is the last `output_mb` of each stream.

    `protection` says in words what was in force; a line that starts with "not in force" says what wasn't.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float
    protection: tuple[str, ...]


@dataclass
class _Tail:
    """The last bytes of a stream, and its lines as they come."""

    capacity: int
    on_line: Callable[[str], None] | None = None
    chunks: deque[bytes] = field(default_factory=deque)
    size: int = 0
    dropped: int = 0
    line: bytes = b""

    def add(self, data: bytes) -> None:
        self.chunks.append(data)
        self.size += len(data)
        while self.size - len(self.chunks[0]) >= self.capacity:
            self.dropped += len(self.chunks[0])
            self.size -= len(self.chunks.popleft())
        if self.on_line is not None:
            *lines, self.line = (self.line + data).split(b"\n")
            for line in lines:
                self.on_line(line.decode(errors="replace"))
            if len(self.line) > _LONGEST_LINE:
                self.finish()

    def finish(self) -> None:
        if self.on_line is not None and self.line:
            self.on_line(self.line.decode(errors="replace"))
        self.line = b""

    def text(self) -> str:
        kept = b"".join(self.chunks).decode(errors="replace")
        return f"[{self.dropped} bytes before this were dropped]\n{kept}" if self.dropped else kept


def run_child(
    argv: Sequence[str],
    *,
    scratch: Path,
    writable: Sequence[Path] = (),
    limits: Limits = Limits(),
    env: Mapping[str, str] = {},
    stdin: str | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Completed:
    """Runs `argv` in the folder `scratch` and waits; afterwards none of its descendants lives.

    Args:
        argv: the command. One that can't be started ends with 127, as in a shell.
        scratch: an existing folder: the child's working directory, home and temporary files.
        writable: further folders to write to. Enforced only under bubblewrap, see `Completed.protection`.
        env: variables on top of the allow-list; they win over it.
        on_line: called in this thread with each line of standard output, without its end.

    Everything is ended on a timeout, on any exception here (KeyboardInterrupt too), and when this process is killed.
    """
    scratch = scratch.resolve()
    _blank_own_secrets()
    environment = child_environment(scratch, env)
    devices = gpu_devices() if environment.get("CUDA_VISIBLE_DEVICES") != "" else []
    if not devices:
        # Under a limit on memory CUDA itself fails before it could say that its devices are hidden; NVML does not.
        environment.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    rlimits, protection = _rlimits(limits, bool(devices))
    fence, said = _fence(scratch, [path.resolve() for path in writable], devices)
    supervisor = [sys.executable, "-I", "-S", _SUPERVISOR, json.dumps(rlimits), str(os.getpid())]
    started = time.monotonic()
    process = subprocess.Popen(
        [*supervisor, *fence, *argv],
        cwd=scratch,
        env=environment,
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    tails = _Tail(limits.output_mb * _MB, on_line), _Tail(limits.output_mb * _MB)
    try:
        timed_out = not _converse(process, stdin, tails, started + limits.seconds)
    finally:
        _end(process)
    for tail in tails:
        tail.finish()
    return Completed(
        returncode=process.returncode,
        stdout=tails[0].text(),
        stderr=tails[1].text(),
        timed_out=timed_out,
        seconds=time.monotonic() - started,
        protection=(*protection, *said),
    )


def child_environment(scratch: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child sees: an allow-list, folders of its own in `scratch`, then `extra`."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and not any(part in name for part in _SECRET)
    }
    if site.ENABLE_USER_SITE:
        environment["PYTHONUSERBASE"] = site.getuserbase()  # found through HOME, which changes
    temporary = scratch / ".tmp"
    temporary.mkdir(exist_ok=True)
    environment |= {
        "HOME": str(scratch),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(scratch / ".cache"),
        "TRITON_CACHE_DIR": str(scratch / ".cache" / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / ".cache" / "inductor"),
        "MPLCONFIGDIR": str(scratch / ".cache" / "matplotlib"),
    }
    return environment | dict(extra)


@functools.lru_cache(maxsize=None)
def _blank_own_secrets() -> None:
    """Overwrites secrets where the system shows this process's environment to others; `os.environ` keeps them.

    Without bubblewrap a child of the same user may read `/proc/PID/environ` of this process, which the system keeps as
    it was at the start. What this process starts with an inherited environment gets blanks, too.
    """
    if not sys.platform.startswith("linux"):
        return
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    for name in os.environ:
        if any(part in name for part in _SECRET) and (address := getenv(name.encode())):
            ctypes.memset(address, ord("-"), len(ctypes.string_at(address)))


def gpu_devices() -> list[str]:
    """Device files of NVIDIA and AMD GPUs on this machine."""
    return sorted(path for pattern in ("/dev/nvidia*", "/dev/kfd", "/dev/dri") for path in glob.glob(pattern))


@functools.lru_cache(maxsize=None)
def bubblewrap() -> str:
    """The path of a bubblewrap that works here, or "": it may be absent, or refused by a container or the kernel."""
    path = shutil.which("bwrap")
    if path is None:
        return ""
    try:
        probe = [path, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net"]
        done = subprocess.run([*probe, "true"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return path if done.returncode == 0 else ""


def _rlimits(limits: Limits, gpu: bool) -> tuple[dict[str, int], list[str]]:
    """Limits by their name in `resource`, and what they protect from in words."""
    values = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": limits.file_mb * _MB}
    said = [
        f"time: {limits.seconds:g} s, then every descendant is killed, also when liger-dev dies",
        "environment: an allow-list without keys and tokens, home and temporary files in the scratch folder",
        f"files: {limits.file_mb} MB each, no core dumps",
    ]
    if gpu:
        said.append("not in force: a memory limit (CUDA reserves more address space than there is memory)")
    else:
        values["RLIMIT_AS"] = limits.memory_mb * _MB
        said.append(f"memory: {limits.memory_mb} MB of address space a process")
    if os.geteuid() == 0:
        said.append("not in force: a limit on processes (root is exempt from it)")
    else:
        values["RLIMIT_NPROC"] = _own_threads() + limits.processes
        said.append(f"processes: {limits.processes} beside those that run already")
    return values, said


def _own_threads() -> int:
    """Threads of this user on this machine: RLIMIT_NPROC counts them all."""
    total = 0
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            if os.stat(folder).st_uid == os.geteuid():
                total += len(os.listdir(f"{folder}/task"))
        except OSError:  # it ended meanwhile
            continue
    return total


def _fence(scratch: Path, writable: Sequence[Path], devices: Sequence[str]) -> tuple[list[str], list[str]]:
    """The bubblewrap command to put before the child's, and what it protects from in words."""
    path = bubblewrap()
    if not path:
        return [], ["not in force: isolation of files and network (bubblewrap is not installed, or may not run here)"]
    args = [path, "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--ro-bind", "/", "/"]
    args += ["--dev", "/dev", "--proc", "/proc"]
    for name in _HIDDEN:
        hidden = Path.home() / name
        if hidden.is_dir():
            args += ["--tmpfs", str(hidden)]
        elif hidden.exists():
            args += ["--ro-bind", "/dev/null", str(hidden)]
    for folder in (scratch, *writable):
        args += ["--bind", str(folder), str(folder)]
    for device in devices:
        args += ["--dev-bind", device, device]
    args += ["--chdir", str(scratch), "--"]
    return args, ["files: all but the scratch folder is read-only, known secrets are hidden", "network: none"]


def _converse(
    process: "subprocess.Popen[bytes]", stdin: str | None, tails: tuple[_Tail, _Tail], deadline: float
) -> bool:
    """Feeds and reads the child until it ended and its pipes are read out. False if the deadline came first."""
    pending = memoryview((stdin or "").encode())
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for stream, tail in zip((process.stdout, process.stderr), tails):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, tail)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while time.monotonic() < deadline:
            for key, _ in selector.select(0.05) if selector.get_map() else ():
                if key.data is None:
                    pending = _write(selector, process.stdin, pending)
                elif data := os.read(key.fd, 1 << 16):
                    key.data.add(data)
                else:
                    selector.unregister(key.fileobj)
            if process.poll() is not None:
                ended_at = ended_at or time.monotonic()
                # A process that escaped may hold a pipe open for ever.
                if not selector.get_map() or time.monotonic() > ended_at + 1:
                    return True
            elif not selector.get_map():
                time.sleep(0.01)
    return False


def _write(selector: selectors.BaseSelector, stream: IO[bytes] | None, pending: memoryview) -> memoryview:
    assert stream is not None, "only a pipe to the child is written to"
    try:
        pending = pending[os.write(stream.fileno(), pending[: 1 << 16]) :]
    except BrokenPipeError:
        pending = memoryview(b"")
    if not pending:
        selector.unregister(stream)
        stream.close()
    return pending


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the supervisor, which ends all below it; what is left of the process group is killed in any case."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
