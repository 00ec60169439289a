"""The GPU benchmark on tiny shapes: attention operators, a kill, the end of the budget, and its FLOPs."""

import json
import sys

import pytest

from benchmarks import harness
from benchmarks.speed import gpu
from tests.helpers.benchmarks import run_benchmark

SMALL = ["--shapes", "tiny", "--rollouts", "8", "--prompt-tokens", "4", "--rounds", "1"]


def test_gpu_benchmark_runs_on_tiny_shapes(tmp_path):
    text = run_benchmark(tmp_path, "speed.gpu", *SMALL, "--lengths", "16")
    assert "dense GRPO" in text and "MFU" in text
    results = json.loads((tmp_path / "gpu.json").read_text())["cases"]["tiny-16"]
    for side in ("D3S, N = G/4, K = 5 %", "dense GRPO"):  # without a mask a flash kernel may run, here the CPU's
        assert results[side]["attention"] == ["scaled_dot_product_flash_attention_for_cpu"]


def test_gpu_results_survive_a_kill_and_the_end_of_the_budget(tmp_path, monkeypatch):
    attempts = []

    def attempt(side):
        attempts.append(side)
        if len(attempts) == 2:
            raise KeyboardInterrupt
        return side()

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(gpu, "attempt", attempt)
    monkeypatch.setattr(gpu, "matrix_rate", lambda: 1e9)
    command = ["speed.gpu", *SMALL, "--lengths", "8"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(KeyboardInterrupt):
        gpu.main()
    (result,) = json.loads((tmp_path / "gpu.json").read_text())["cases"]["tiny-8"].values()
    assert result["seconds"][0] > 0 and "| tiny | 8 | D3S, N = G/4, K = 5 % | " in (tmp_path / "gpu.md").read_text()
    ticks = iter([0.0, 1.0, 2.0, 4.0, 4.0, 4.0])  # at the start, then before each side
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(gpu, "attempt", lambda side: {"failed": "tried"})
    monkeypatch.setattr(sys, "argv", [*command, "--budget", "3"])
    gpu.main()
    text = (tmp_path / "gpu.md").read_text()
    assert text.count("| tried |") == 2 and "8, TRL" in text
    assert "no time was left for: tiny at 8, d3s without selection" in text
