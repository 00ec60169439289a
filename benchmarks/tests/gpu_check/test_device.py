"""The stage `device` on the CPU: versions that are installed, and a driver that torch cannot use."""

import torch

from benchmarks.gpu_check import device
from benchmarks.tests.stages import not_held


def test_device_names_installed_versions(monkeypatch):
    monkeypatch.setattr(device, "matrix_rate", lambda: 2e12)
    rows = {row.what: row.measured for row in device.run("cpu", 60)}
    assert rows["device"] == "CPU" and f"torch {torch.__version__}, transformers" in rows["versions"]
    assert "trl" not in rows["versions"] and rows["bfloat16 matrix products"] == "2.00 TFLOP/s"


def test_unusable_driver_is_noticed(monkeypatch, tmp_path):
    """Else a check of a machine with a card would hold on its CPU."""
    monkeypatch.setattr(device, "matrix_rate", lambda: 2e12)
    monkeypatch.setattr(device, "DRIVER", tmp_path)
    assert not_held(device.run("cpu", 60)) == ["NVIDIA driver that torch cannot use"]
