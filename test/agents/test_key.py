"""The API key stays in this process: not in a child's environment, and not where a child could read it."""

import os
import subprocess
import sys

from pathlib import Path

import pytest

KEY = "sk-ant-test-of-the-key"
REPO = Path(__file__).parents[2]

# A child that looks at its own environment and at that of every process above it.
_LOOK = """
import os
pid = os.getpid()
while pid > 1:
    try:
        print(open(f"/proc/{pid}/environ").read())
    except OSError as error:
        print(error)
    pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    if pid == int(os.environ["STOP"]):
        break
"""
_RUN = """
import os, sys, tempfile
from pathlib import Path
from liger_dev.sandbox import run_child
scratch = Path(tempfile.mkdtemp())
env = {"STOP": os.environ["STOP"]}
print(run_child([sys.executable, "-c", sys.argv[1]], scratch=scratch, env=env).stdout)
print("own:", os.environ["ANTHROPIC_API_KEY"] == sys.argv[2], file=sys.stderr)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_no_child_can_read_the_key_and_this_process_keeps_it(tmp_path):
    env = {**os.environ, "ANTHROPIC_API_KEY": KEY, "PYTHONPATH": str(REPO), "STOP": str(os.getpid())}
    command = [sys.executable, "-c", _RUN, _LOOK, KEY]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.strip() == "own: True", done.stderr
    assert "STOP=" in done.stdout and "ANTHROPIC_API_KEY=---" in done.stdout, (
        "the child has seen an environment above it"
    )
    assert KEY not in done.stdout
