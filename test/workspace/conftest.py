"""A small workspace, and child processes that are dead when the test ends."""

import os
import subprocess
import sys
import tempfile

from pathlib import Path

import pytest

from workspace_cases import HERE
from workspace_cases import environment
from workspace_cases import make_workspace


@pytest.fixture
def tmp_path(tmp_path):
    """A folder in memory where the system has one: these tests sync all the time, 14 s there and 56 s on a busy disk."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture
def root(tmp_path):
    return make_workspace(tmp_path / "work")


@pytest.fixture
def looping():
    """Starts looping_child.py; every child is dead when the test ends."""
    started = []

    def start(*arguments, is_ready=True):
        command_line = [sys.executable, HERE / "looping_child.py", *map(str, arguments)]
        child = subprocess.Popen(command_line, env=environment(), stdout=subprocess.PIPE, text=True)
        started.append(child)
        if is_ready:
            assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()
