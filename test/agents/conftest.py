"""A served script with the environment that leads the SDK to it, and the small workspace of the validator's tests."""

import runpy
import textwrap

from pathlib import Path

import pytest

from messages_server import KEY
from messages_server import Script
from messages_server import serving

# An op without torch, for what is about agents and children and not about kernels: ten times as fast.
_PLAIN = {
    "kernels/ops/center.py": '''
        """Gives back how large a number is."""

        import math


        def center(x):
            size = math.fabs(x)
            return size
        ''',
    "test/kernels/test_center.py": """
        from kernels.ops.center import center


        def test_center():
            assert center(3) == 3
        """,
}
_CENTER = runpy.run_path(str(Path(__file__).parents[1] / "validator" / "conftest.py"))["FILES"]


@pytest.fixture
def serve(monkeypatch):
    """`serve(*replies, **options)` starts a server with this script, for the SDK to find."""
    running = []

    def start(*replies, **options):
        script = Script(list(replies), **options)
        server = serving(script)
        running.append(server)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.__enter__())
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        return script

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture
def center(tmp_path):
    """A workspace with one small kernel, without what only a validation of the whole needs."""
    return _written(tmp_path, _CENTER)


@pytest.fixture
def plain(tmp_path):
    """The same workspace with an op of plain Python."""
    return _written(tmp_path, {**_CENTER, **_PLAIN})


def _written(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(textwrap.dedent(text).lstrip("\n"))
    return root
