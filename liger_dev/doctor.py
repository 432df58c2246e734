"""The machine in, findings out: what is installed, and in words what will and what won't work with it."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys

from dataclasses import dataclass
from typing import Any
from typing import Literal

from liger_dev import sandbox

PROBE_SECONDS = 60
_MIN_PYTHON = (3, 10)

# Importing torch takes seconds and may crash on a broken driver, so a child does it. The last line is its answer.
_PROBE = """
import importlib, json
found = {}
for name in ("torch", "triton", "numpy"):
    try:
        found[name] = importlib.import_module(name).__version__
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        found[name + "_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
found["gpus"] = []
if "torch" in found:
    import torch
    try:
        if torch.cuda.is_available():
            found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except RuntimeError as error:
        found["gpu_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    found["backend"] = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis: `broken` means that the tool can't run, `limited` that something is left out."""

    subject: str
    state: Literal["ok", "limited", "broken"]
    found: str
    meaning: str


def diagnose() -> list[Finding]:
    """All findings about this machine; takes some seconds, since a child process imports torch."""
    probe = probe_torch(sys.executable)
    return [
        _python(),
        *(_library(name, probe) for name in ("torch", "triton")),
        _numpy(probe),
        _gpu(probe),
        _ncu(),
        _ruff(),
        _bubblewrap(),
        _key(),
        _optional("liger-kernel", "Liger-Kernel's own op is a benchmark provider (liger_kernel)"),
        _optional("transformers", "its modules can be named as a source"),
    ]


def probe_torch(python: str) -> dict[str, Any]:
    """What an interpreter finds when it imports torch, triton and numpy; {"error": …} if that fails as a whole."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch took more than {PROBE_SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"the probe ended with code {done.returncode}: {last}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info >= _MIN_PYTHON:
        return Finding("python", "ok", version, f"on {platform.system()} {platform.machine()}")
    return Finding("python", "broken", version, "liger-dev needs Python 3.10 or newer")


def _library(name: str, probe: dict[str, Any]) -> Finding:
    if name in probe:
        return Finding(name, "ok", probe[name], f"built for {probe['backend']}" if name == "torch" else "")
    reason = probe.get("error") or probe.get(f"{name}_error", "")
    return Finding(name, "broken", reason, f"no kernel can be traced or tested; install it: pip install {name}")


def _numpy(probe: dict[str, Any]) -> Finding:
    version = probe.get("numpy")
    if version is None:
        reason = probe.get("error") or probe.get("numpy_error", "")
        return Finding("numpy", "limited", reason, "Triton's interpreter needs it: no tests without a GPU")
    if _release(version) >= (2, 4):
        return Finding(
            "numpy",
            "ok",
            version,
            "Triton's interpreter fails with numpy >= 2.4; liger_dev.grading.interpreter mends it",
        )
    return Finding("numpy", "ok", version, "")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _gpu(probe: dict[str, Any]) -> Finding:
    if gpus := probe.get("gpus"):
        names = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))
        return Finding("GPU", "ok", names, f"driver {_driver()}; tests run on it, speed and memory are measured")
    why = probe.get("gpu_error") or ("torch is built without CUDA" if probe.get("backend") == "cpu" else "none found")
    meaning = "tests run in Triton's interpreter and kernels are compiled ahead of time; no speed or memory is measured"
    return Finding("GPU", "limited", why, meaning)


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else "unknown"


def _ncu() -> Finding:
    if path := shutil.which("ncu"):
        return Finding("ncu", "ok", path, "--ncu adds a profile of the kernels")
    return Finding("ncu", "limited", "not on PATH", "--ncu reports that it was left out")


def _ruff() -> Finding:
    version = _installed("ruff")
    if version:
        return Finding("ruff", "ok", version, "")
    return Finding("ruff", "broken", "not installed", "files can't be formatted or checked: pip install ruff")


def _bubblewrap() -> Finding:
    path = shutil.which("bwrap")
    if path is None:
        meaning = "kernels run in child processes with limits, without a sandbox around the file system"
        return Finding("bubblewrap", "limited", "not on PATH", meaning)
    if sandbox.bubblewrap():
        return Finding("bubblewrap", "ok", path, "kernels and references can write to their scratch folder alone")
    return Finding(
        "bubblewrap", "limited", path, "it can't make a namespace here: children run with limits, without a sandbox"
    )


def _key() -> Finding:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return Finding("ANTHROPIC_API_KEY", "ok", "set", "not used yet: this version has the builtin engine alone")
    return Finding("ANTHROPIC_API_KEY", "ok", "not set", "the builtin engine needs none")


def _optional(name: str, meaning: str) -> Finding:
    version = _installed(name)
    if version:
        return Finding(name, "ok", version, meaning)
    return Finding(name, "ok", "not installed", f"optional; with it, {meaning}")


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
