"""Measured points as lines: what counts as measured, and the records that a profile gets of them."""

import json

import pytest

from liger_dev.tuned_points import bucket
from liger_dev.tuned_points import key_of
from liger_dev.tuned_points import merged
from liger_dev.tuned_points import read
from liger_dev.tuned_points import records
from liger_dev.tuned_points import to_text

BODIES = {"_k_forward_kernel": "0123abcd", "_k_backward_kernel": "4567abcd"}
DEFAULT, OTHER = {"BLOCK_ROWS": 1, "num_warps": 8}, {"BLOCK_ROWS": 1, "num_warps": 4}


def line(size=4096, best=OTHER, kernel="_k_forward_kernel", **more):
    return {
        "kernel": kernel,
        "body": BODIES[kernel],
        "dtype": "bfloat16",
        "size": size,
        "gpu": "NVIDIA H200",
        "arch": "sm_90",
        "versions": {"torch": "2.11.0", "triton": "3.6.0"},
        "default": DEFAULT,
        "best": best,
        "timestamp": "2026-11-30 12:00:00",
        "ms": 0.9,
        "default_ms": 1.0,
        **more,
    }


@pytest.mark.parametrize(
    "size, wanted", [(1, (0, 1)), (2, (1, 2)), (3, (2, 4)), (4096, (2048, 4096)), (4097, (4096, 8192))]
)
def test_a_bucket_ends_with_a_power_of_two(size, wanted):
    assert bucket(size) == wanted


def test_neighbouring_buckets_with_the_same_settings_become_one_range():
    found = records([line(16384), line(4096), line(8192), line(32768, best={"BLOCK_ROWS": 1, "num_warps": 16})], BODIES)
    assert [(one.above, one.up_to, one.settings["num_warps"]) for one in found] == [
        (2048, 16384, 4),
        (16384, 32768, 16),
    ]
    assert [timing.size for timing in found[0].timings] == [4096, 8192, 16384]


def test_a_bucket_between_that_keeps_its_default_parts_them():
    found = records([line(4096), line(8192, best=DEFAULT), line(16384)], BODIES)
    assert [(one.above, one.up_to) for one in found] == [(2048, 4096), (8192, 16384)]


def test_other_gpus_dtypes_and_kernels_stay_apart_in_the_kernels_order():
    lines = [
        line(kernel="_k_backward_kernel"),
        line(),
        line(8192, gpu="NVIDIA H100"),
        line(8192, dtype="float32"),
        line(arch="sm_80", gpu="NVIDIA A100"),
    ]
    found = records(lines, BODIES)
    assert [one.kernel for one in found] == ["_k_forward_kernel"] * 4 + ["_k_backward_kernel"]
    assert {(one.arch, one.dtype, one.gpu, one.up_to) for one in found[:4]} == {
        ("sm_80", "bfloat16", "NVIDIA A100", 4096),
        ("sm_90", "bfloat16", "NVIDIA H200", 4096),
        ("sm_90", "bfloat16", "NVIDIA H100", 8192),
        ("sm_90", "float32", "NVIDIA H200", 8192),
    }


def test_the_latest_point_of_a_bucket_counts_and_a_changed_kernel_has_none():
    again = line(best=DEFAULT, timestamp="2026-12-01 12:00:00")
    assert records([again, line()], BODIES) == []
    assert records([line()], {"_k_forward_kernel": "ffffffff"}) == []


def test_a_point_is_known_by_all_that_its_times_depend_on():
    base = line()
    for other in (
        line(8192),
        line(dtype="float16"),
        line(gpu="NVIDIA H100"),
        line(versions={"torch": "2.12.0", "triton": "3.6.0"}),
        line(default=OTHER),
        line(body="ffffffff"),
    ):
        assert key_of(other) != key_of(base)
    assert key_of(line(4000, best=DEFAULT, timestamp="later")) == key_of(base)
    assert merged([base], [line(ms=0.8)], [line(8192)]) == [line(ms=0.8), line(8192)]


def test_lines_come_back_and_one_that_was_cut_short_is_left_out(tmp_path):
    path = tmp_path / "k.jsonl"
    assert read(path) == []
    path.write_text(to_text([line(), line(8192)]) + json.dumps(line(16384))[:50])
    assert read(path) == [line(), line(8192)]
