"""The CSV file: Liger's columns and key, what is kept, what is replaced, and two writers at once."""

import csv
import multiprocessing

from dataclasses import replace
from pathlib import Path

import pytest

from liger_dev.bench.csv import COLUMNS
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import append
from liger_dev.bench.csv import read
from liger_dev.bench.csv import tagged
from liger_dev.bench.csv import target
from liger_dev.errors import BadInput

ROW = Measurement(
    "rms_norm", "liger", "forward", "speed", "ms", "H", "hidden size", 4096, 0.04, 0.039, 0.042,
    '{"B": 4, "dtype": "bfloat16"}', "a GPU", "2026-01-02 03:04:05", "0.1.0",
)  # fmt: skip


def test_header_is_ligers_fifteen_columns(tmp_path):
    append(tmp_path / "data" / "all.csv", [ROW])
    header = (tmp_path / "data" / "all.csv").read_text().splitlines()[0]
    assert header == (
        "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,y_value_50,"
        "y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,liger_version"
    )


def test_rows_come_back_as_they_went_in(tmp_path):
    rows = (ROW, replace(ROW, x_value="llama_3_8b"), replace(ROW, x_value=0.5, kernel_provider="torch"))
    assert append(tmp_path / "all.csv", rows) == rows
    assert read(tmp_path / "all.csv") == rows


def test_same_key_is_kept_unless_overwritten(tmp_path):
    path = tmp_path / "all.csv"
    later = replace(
        ROW, y_value_50=0.03, timestamp="2027-01-01 00:00:00", liger_version="9", metric_unit="s", x_label="h"
    )
    other = replace(ROW, kernel_provider="torch")
    append(path, [ROW, other])
    assert append(path, [later]) == ()
    assert read(path) == (ROW, other)
    assert append(path, [later], overwrite=True) == (later,)
    assert read(path) == (later, other)


@pytest.mark.parametrize(
    "column", ["kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name", "x_name", "x_value",
               "extra_benchmark_config_str", "gpu_name"]
)  # fmt: skip
def test_a_different_key_column_is_another_row(tmp_path, column):
    other = replace(ROW, **{column: "another"})
    append(tmp_path / "all.csv", [ROW])
    assert append(tmp_path / "all.csv", [other]) == (other,)
    assert len(read(tmp_path / "all.csv")) == 2


def test_rows_of_others_keep_their_text_and_line_ends(tmp_path):
    path = tmp_path / "all.csv"
    foreign = [
        "swiglu",
        "liger",
        "",
        "speed",
        "ms",
        "T",
        "length",
        "1024.0",
        "1.50",
        "1e-3",
        "nan",
        "{}",
        "A100",
        "t",
        "0.3",
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, foreign])
    before = path.read_bytes()
    append(path, [ROW])
    after = path.read_bytes()
    assert after.startswith(before) and after.count(b"\r\n") == 3


def test_a_broken_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="fifteen columns"):
        append(path, [ROW])
    assert path.read_text() == "a,b\n1,2\n"
    assert [file.name for file in tmp_path.iterdir()] == ["all.csv"]


def test_a_value_that_is_no_number_names_its_line(tmp_path):
    path = tmp_path / "all.csv"
    append(path, [ROW, replace(ROW, x_value=1)])
    path.write_text(path.read_text().replace(",1,0.04,", ",1,fast,"))
    with pytest.raises(BadInput) as raised:
        read(path)
    assert raised.value.where == f"{path}:3"


def _append_many(path: Path, provider: str) -> None:
    for x in range(20):
        append(path, [replace(ROW, kernel_provider=provider, x_value=x)])


def test_two_writers_at_once_lose_no_row(tmp_path):
    path = tmp_path / "all.csv"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, name)) for name in ("liger", "torch")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(read(path)) == 40
    assert [file.name for file in tmp_path.iterdir()] == ["all.csv"]


def test_environment_picks_the_file_and_tags_the_provider(tmp_path):
    assert target(tmp_path, {}) == tmp_path / "all_benchmark_data.csv"
    assert target(tmp_path, {"LIGER_BENCH_TARGET": "probe"}) == tmp_path / "all_benchmark_data_probe.csv"
    assert target(tmp_path, {"LIGER_BENCH_TARGET": "/data/mine.csv"}) == Path("/data/mine.csv")
    tag = {"LIGER_BENCH_PROVIDER_TAG": "liger_v2"}
    assert [tagged(name, tag) for name in ("liger", "liger_kernel", "torch")] == ["liger_v2", "liger_kernel", "torch"]
    assert tagged("liger", {}) == "liger"
