"""The diagnosis of environments that this machine is not."""

import stat

from liger_dev import doctor


def _python_that(tmp_path, script) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def _states(monkeypatch, probe) -> dict[str, doctor.Finding]:
    monkeypatch.setattr(doctor, "probe_torch", lambda python: probe)
    return {finding.subject: finding for finding in doctor.diagnose()}


def test_a_python_whose_torch_does_not_import_is_an_answer_and_no_crash(tmp_path):
    probe = doctor.probe_torch(_python_that(tmp_path, "echo 'libcuda.so: bad driver' >&2; exit 139"))
    assert probe == {"error": "the probe ended with code 139: libcuda.so: bad driver"}


def test_a_python_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 0.2)
    assert "took more than" in doctor.probe_torch(_python_that(tmp_path, "exec sleep 20"))["error"]


def test_without_torch_nothing_runs(monkeypatch):
    found = _states(monkeypatch, {"torch_error": "ModuleNotFoundError: No module named 'torch'", "gpus": []})
    assert found["torch"].state == found["triton"].state == "broken"
    assert "pip install torch" in found["torch"].meaning


def test_a_new_numpy_is_mended_and_said(monkeypatch):
    probe = {"torch": "2.11.0", "triton": "3.6.0", "numpy": "2.5.0", "gpus": [], "backend": "cuda"}
    found = _states(monkeypatch, probe)
    assert found["numpy"].state == "ok" and "liger_dev.grading.interpreter" in found["numpy"].meaning
    assert found["GPU"].state == "limited" and "no speed" in found["GPU"].meaning


def test_gpus_are_counted(monkeypatch):
    probe = {"torch": "2.11.0", "triton": "3.6.0", "numpy": "2.3.0", "gpus": ["H200", "H200"], "backend": "cuda"}
    found = _states(monkeypatch, probe)
    assert (found["GPU"].state, found["GPU"].found) == ("ok", "2 x H200")
