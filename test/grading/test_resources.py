"""What the parent makes of the gate's JSON, which a child wrote."""

import json
import subprocess
import sys

import pytest

from liger_dev.errors import KernelFailed
from liger_dev.grading.resources import KernelResources
from liger_dev.grading.resources import failures
from liger_dev.grading.resources import print_gate
from liger_dev.grading.resources import read_gate
from liger_dev.grading.resources import warnings

GOOD = KernelResources("_k", "forward", "sm_90", "BLOCK=8", registers=32, shared_bytes=64, seconds=0.5)
SPILLS = KernelResources("_k", "backward", "sm_80", "BLOCK=8", registers=255, spill_bytes=12)
BROKEN = KernelResources("_k", "backward", "gfx942", "BLOCK=8", error="x is not defined")


LACKING = KernelResources("_k", "forward", "sm_80", "BLOCK=8", lacks="fp8e4nv")


def test_records_survive_the_way_through_json():
    assert read_gate(print_gate([GOOD, SPILLS, BROKEN, LACKING])) == (GOOD, SPILLS, BROKEN, LACKING)


def test_an_error_fails_and_a_spill_warns():
    assert str(LACKING) == "_k for sm_80 (BLOCK=8): not compiled, sm_80 has no fp8e4nv"
    assert failures([GOOD, SPILLS, BROKEN, LACKING]) == ("_k for gfx942 (BLOCK=8): x is not defined",)
    assert [line.startswith("_k for sm_80") for line in warnings([GOOD, SPILLS, BROKEN])] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PASS",
        "[]",
        "null",
        "{}",
        '{"error": ""}',
        '{"error": "", "resources": []}',
        '{"error": "", "resources": [1]}',
        '{"error": "it broke", "resources": []}',
        print_gate([GOOD]).replace('"registers": 32', '"registers": "few"'),
        print_gate([GOOD]).replace('"registers": 32', '"registers": true'),
        print_gate([GOOD]).replace('"registers": 32', '"passed": true'),
        print_gate([GOOD]).replace('"_k"', "null"),
    ],
)
def test_anything_else_is_a_failure(text):
    with pytest.raises(KernelFailed):
        read_gate(text)


def test_reading_imports_no_torch():
    code = "import sys, liger_dev.grading.resources; print(json.dumps([m for m in ('torch', 'triton') if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", "import json; " + code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
