"""The step benchmark: its command line at the smallest size, and its table on hand-made measurements."""

import json

from benchmarks.speed.step import rows_of
from tests.helpers.benchmarks import TINY_MODEL, needs_trl, run_benchmark

SMALL = ["--prompts", "1", "--group", "8", "--micro-batch", "4", "--response-tokens", "8", "--vocabulary", "300"]


def test_step_rows_compare_with_the_first_side():
    d3s = {"wall": 2.0, "cpu": 1.0, "generate": 1.5, "update": 0.25, "sync": 0.1}
    trl = {"wall": 5.0, "cpu": 4.0, "generate": 3.0}
    assert rows_of({"D3S": [d3s], "TRL": [trl]}) == [
        ["D3S", "2.00 (2.00-2.00)", "1.00 (1.00-1.00)", "1.0x", "1.50", "0.25", "0.10", "5.0%"],
        ["TRL", "5.00 (5.00-5.00)", "4.00 (4.00-4.00)", "4.0x", "3.00", "", "", ""],
    ]


@needs_trl
def test_step_benchmark_times_d3s_and_trl(tmp_path):
    text = run_benchmark(tmp_path, "speed.step", *SMALL, *TINY_MODEL)
    assert "D3S, N = 5 of 8" in text and "TRL" in text


def test_step_benchmark_times_d3s(tmp_path):
    run_benchmark(tmp_path, "speed.step", *SMALL, *TINY_MODEL)
    measurements = json.loads((tmp_path / "step.json").read_text())["measurements"]
    selected, full = (measurements[name][0] for name in ("D3S, N = 5 of 8, K = 12.5 %", "d3s without selection"))
    assert 0 < selected["selected"] < full["selected"] <= 8 * 8
    assert all(selected[phase] > 0 for phase in ("generate", "update", "sync"))
