"""The sandbox benchmark: its command line at the smallest size, its row on made-up durations."""

import json

from benchmarks.speed.sandbox import row, small_program
from tests.helpers.benchmarks import run_benchmark


def test_sandbox_benchmark_times_programs(tmp_path):
    text = run_benchmark(tmp_path, "speed.sandbox", "--programs", "3")
    assert "median" in text
    record = json.loads((tmp_path / "sandbox.json").read_text())
    assert record["start"] > 0 and len(record["seconds"]) == 3 and min(record["seconds"]) > 0


def test_sandbox_row_has_median_and_p95():
    assert row(0.15, [i / 1000 for i in range(100, 0, -1)]) == ["100", "150", "51.0", "96.0"]


def test_small_programs_answer_their_tests():
    program, tests = small_program(7)
    namespace: dict = {}
    exec("\n".join([program, *tests]), namespace)
    assert small_program(8)[0] != program and len(tests) == 3
