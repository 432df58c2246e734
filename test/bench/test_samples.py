"""Samples on disk: kept beside their rows, the latest counts; a noise run's file is another; liger-kernel's ops fit."""

import inspect
import os
import subprocess
import sys

from dataclasses import replace
from pathlib import Path

import pytest

from liger_dev.bench import device
from liger_dev.bench import peers
from liger_dev.bench import samples
from liger_dev.bench.csv import Measurement
from liger_dev.bench.csv import key
from liger_dev.bench.device import QUERY
from liger_dev.bench.device import parse_state
from liger_dev.bench.samples import Circumstances
from liger_dev.sources import catalog_names
from liger_dev.sources import catalog_source

ROW = Measurement(
    "center",
    "liger",
    "full",
    "speed",
    "ms",
    "N",
    "columns",
    64,
    1.0,
    0.9,
    1.1,
    "{}",
    "a GPU",
    "2026-01-01 00:00:00",
    "0",
)
OTHER = replace(ROW, kernel_provider="torch")


def test_what_is_kept_is_read_and_the_latest_counts(tmp_path):
    path = samples.path_beside(tmp_path / "all.csv", "center")
    before, after = {"clocks.sm": "345 MHz"}, {"clocks.sm": "1980 MHz"}
    samples.keep(path, [ROW, OTHER], [(1.0, 1.23456789), (2.0,)], Circumstances({"torch": "2"}, before, after))
    samples.keep(path, [replace(ROW, timestamp="2026-01-02 00:00:00")], [(3.0,)], Circumstances({"torch": "3"}))
    found = {one.provider: one for one in samples.read(path)}
    assert found["torch"].samples == (2.0,) and found["torch"].under.after == after
    assert found["liger"].samples == (3.0,) and found["liger"].under.versions == {"torch": "3"}
    assert (found["liger"].mode, found["liger"].metric, found["liger"].x) == ("full", "speed", "64")
    assert found["liger"].key == key(ROW)
    assert samples.read(samples.path_beside(tmp_path / "all.csv", "center", noise=True)) == ()


def test_each_csv_file_of_a_folder_has_samples_of_its_own(tmp_path):
    plain, probe = (tmp_path / f"all_benchmark_data{tag}.csv" for tag in ("", "_probe"))
    assert samples.path_beside(plain, "center") == tmp_path / "samples" / "center.jsonl"
    assert samples.path_beside(probe, "center") == tmp_path / "samples_probe" / "center.jsonl"
    assert samples.path_beside(tmp_path / "benchmark.csv", "center", noise=True).name == "center_noise.jsonl"


def test_two_who_measure_wait_for_each_other_and_those_who_prepare_do_not(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "device_id", lambda: f"GPU-{tmp_path.name}")
    code = (
        "import sys\nfrom liger_dev.bench import device\n"
        f"device.device_id = lambda: 'GPU-{tmp_path.name}'\nprint('ready', flush=True)\n"
        "with device.device_lock(shared=sys.argv[1] == 'shared'):\n    print('locked', flush=True)"
    )

    def other(kind):
        command = [sys.executable, "-c", code, kind]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
        assert started.stdout.readline() == b"ready\n"
        return started

    with device.device_lock(shared=True):
        with other("shared") as prepares:
            assert prepares.stdout.readline() == b"locked\n"
        measures = other("alone")
        with pytest.raises(subprocess.TimeoutExpired):
            measures.wait(timeout=1)
    with measures:
        assert measures.stdout.readline() == b"locked\n"
    Path(f"/tmp/liger-dev-GPU-{tmp_path.name}.lock").unlink()


def test_merging_drops_what_was_measured_again_as_a_whole(tmp_path):
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    samples.keep(old, [ROW, OTHER], [(1.0,), (2.0,)])
    samples.keep(old, [replace(ROW, x_value=128)], [(5.0,)])
    samples.keep(new, [ROW], [(3.0,)])
    half = samples.merged(old.read_text(), new.read_text())
    assert len(half.splitlines()) == 3
    samples.keep(new, [OTHER], [(4.0,)])
    merged = tmp_path / "merged.jsonl"
    merged.write_text(samples.merged(old.read_text(), new.read_text()))
    assert sorted(one.samples for one in samples.read(merged)) == [(3.0,), (4.0,), (5.0,)]
    assert len(merged.read_text().splitlines()) == 3


def test_the_device_s_readings_have_nvidia_smi_s_names():
    line = "1980 MHz, 3201 MHz, 1980 MHz, 41, 512.33 W, 0x0000000000000000, 580.159.03\n"
    found = parse_state(line)
    assert tuple(found) == QUERY and found["temperature.gpu"] == "41" and found["clocks.sm"] == "1980 MHz"
    assert parse_state("No devices were found\n") == {"unread": "No devices were found"}


class _Recorder:
    """Stands for liger-kernel's module of functions: what was called, and with what."""

    def __init__(self):
        self.called = ""

    def __getattr__(self, name):
        def function(*arguments, **options):
            self.called, self.arguments = name, arguments
            return arguments

        return function


@pytest.mark.parametrize("name", sorted(peers._CALLS))
def test_liger_kernel_s_op_takes_the_reference_s_tensors_in_their_order(name):
    assert name in dict(catalog_names())
    namespace: dict = {}
    exec(catalog_source(name).text, namespace)
    parameters = inspect.signature(namespace[name]).parameters.values()
    tensors = [parameter.name for parameter in parameters if "Tensor" in str(parameter.annotation)]
    peer = _Recorder()
    peers._CALLS[name](peer, *tensors)
    assert peer.called.startswith("liger_")
    assert [argument for argument in peer.arguments if isinstance(argument, str) and argument in tensors] == tensors


def test_without_liger_kernel_there_is_no_op(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "liger_kernel", None)
    assert peers.liger_kernel_op("rms_norm") is None
    assert not peers.has_peer("l2_norm")
