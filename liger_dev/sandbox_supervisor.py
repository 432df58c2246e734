"""Started by `sandbox.run_child` as `python -I -S THIS LIMITS PARENT COMMAND...`: runs COMMAND and outlives none of it.

Stays between the tool and the child because limits must be set after the fork without `preexec_fn` (unsafe with
threads), and because only a subreaper gets hold of grandchildren that left the process group. Imports nothing of
liger_dev: it must start in milliseconds.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _children() -> list[int]:
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent_of(pid) == own]


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _end_descendants() -> None:
    """Kills children until none is left: orphans of a killed child become ours, since this is a subreaper."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and (children := _children()):
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        _reap_all()


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
        time.sleep(0.002)
    except ChildProcessError:
        pass


def _become_child(limits: dict[str, int], command: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for name, value in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def main() -> None:
    limits, parent, command = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]

    def stop(*_: object) -> None:
        _end_descendants()
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(128 + signal.SIGTERM)

    child = os.fork()
    if child == 0:
        _become_child(limits, command)
    # Ours keep pipes open, and a reader would wait for them.
    os.close(0)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    _end_descendants()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
