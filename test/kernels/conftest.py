"""Where kernels run in tests: on the CUDA device if there is one, else in Triton's interpreter on the CPU."""

import os

import pytest
import torch

# Triton reads this when a kernel is defined, so it must be set before any kernel is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

    from liger_dev.grading import interpreter

    interpreter.install()


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped by name without one")
    # The interpreter computes masked lanes too, and NumPy warns of what they overflow.
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:triton")
    # Of the reference's own calls, which torch warns of: no rows, mixed dtypes, what it means to change.
    config.addinivalue_line("filterwarnings", "ignore::UserWarning:torch")
    config.addinivalue_line("filterwarnings", "ignore::UserWarning:kernels.reference")


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(int(os.environ.get("LIGER_DEV_TEST_SEED", "0")))
