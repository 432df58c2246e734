"""What every test shares: those marked `gpu` are skipped where there is no CUDA device; none runs for ever."""

import os

import pytest

# Seconds a test, for pytest-timeout. A line in pyproject.toml would be an error wherever the plugin is missing, and a
# kernel's tests also run there.
os.environ.setdefault("PYTEST_TIMEOUT", "300")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write what is emitted now to test/compiler/golden")


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
