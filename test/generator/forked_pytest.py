"""`{name: [root, seed, path of a test file]}` on stdin; `{name: [exit code, output]}` on stdout.

Each run is a fork of this process, which has torch and triton imported: starting them anew takes seconds a run. A
fork's crash is its own.
"""

import json
import os
import sys

from pathlib import Path

import pytest
import torch
import triton  # noqa: F401
import triton.language  # noqa: F401
import triton.runtime.interpreter  # noqa: F401

from torch.utils._python_dispatch import TorchDispatchMode


class Passive(TorchDispatchMode):
    """The first dispatch mode of a process imports sympy and more: 1.5 s."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def run(root: str, seed: str, test: str) -> tuple[int, str]:
    output = Path(root) / f"output-{seed}.txt"
    child = os.fork()
    if child == 0:
        os.chdir(root)
        os.environ["LIGER_DEV_TEST_SEED"] = seed
        with output.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", test])
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), output.read_text()[-3000:]


if __name__ == "__main__":
    with Passive():
        torch.ones(1) * 2
    runs = json.load(sys.stdin)
    results = {name: run(*arguments) for name, arguments in runs.items()}
    json.dump(results, sys.stdout)
