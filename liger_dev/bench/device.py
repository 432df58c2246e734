"""A CUDA device in, its clocks, temperature and power as nvidia-smi reads them out, and the right to measure on it alone."""

import fcntl
import os
import subprocess
import tempfile

from collections.abc import Iterator
from contextlib import contextmanager
from contextlib import suppress
from pathlib import Path

import torch

from liger_dev.errors import BadInput

QUERY = (
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "temperature.gpu",
    "power.draw",
    "clocks_event_reasons.active",
    "driver_version",
)
_SECONDS = 20


def device_id() -> str:
    """The UUID of the current device, which nvidia-smi takes, whatever CUDA_VISIBLE_DEVICES makes of its number."""
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def device_state() -> dict[str, str]:
    """The current device's readings by nvidia-smi's names, units included; `unread` is why there are none."""
    argv = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader", "-i", device_id()]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"unread": type(error).__name__}
    return parse_state(done.stdout) if done.returncode == 0 else {"unread": (done.stdout or done.stderr).strip()[:200]}


def parse_state(line: str) -> dict[str, str]:
    """The readings in nvidia-smi's one line of CSV."""
    values = [value.strip() for value in line.strip().split(",")]
    if len(values) != len(QUERY):
        return {"unread": line.strip()[:200]}
    return dict(zip(QUERY, values, strict=True))


@contextmanager
def device_lock(shared: bool = False) -> Iterator[None]:
    """Waits for the device: one measures at a time, and while one measures, nobody who asked prepares (`shared`)."""
    handle = _open_lock(f"liger-dev-{device_id()}.lock")
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open_lock(name: str) -> int:
    """A file that all users' benchmarks open, also those whose temporary folder is one of their own; in a sandbox that
    shows no common folder, one in that folder, and then nobody is waited for."""
    common, own = Path("/tmp") / name, Path(tempfile.gettempdir()) / name
    # Reading is enough for a lock; in a shared folder nobody may create what someone else's file is already.
    for path, flags in ((common, os.O_RDONLY), (common, os.O_RDONLY | os.O_CREAT), (own, os.O_RDONLY | os.O_CREAT)):
        with suppress(OSError):
            return os.open(path, flags, 0o644)
    raise BadInput("no file can be made to lock the device with", str(own), "make the folder writable")
