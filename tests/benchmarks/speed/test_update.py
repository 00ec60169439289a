"""The update benchmark through its command line at the smallest size, with and without TRL."""

import json

from tests.helpers.benchmarks import TINY_MODEL, needs_trl, run_benchmark

SMALL = ["--rollouts", "8", "--group", "4", "--micro-batch", "4", "--prompt-tokens", "4", "--response-tokens", "8"]


def test_update_benchmark_times_all_d3s_sides(tmp_path):
    """D3S keeps 1 of 4 rollouts per prompt and ceil(5 %) of the 2 x 8 tokens: 1; without selection all 64 tokens."""
    text = run_benchmark(tmp_path, "speed.update", "--vocabularies", "300", *SMALL, *TINY_MODEL)
    measurements = json.loads((tmp_path / "update.json").read_text())["measurements"]["300"]
    for side in ("D3S, N = G/4, K = 5 %", "d3s without selection", "dense GRPO"):
        assert side in text and measurements[side][0]["cpu"] > 0
    assert measurements["D3S, N = G/4, K = 5 %"][0]["trained"] == 1
    full = measurements["d3s without selection"][0]
    assert full["trained"] == 8 * 8 and full["forwarded"] == 8 * (4 + 8 - 1)


@needs_trl
def test_update_benchmark_finds_equal_losses_with_trl(tmp_path):
    text = run_benchmark(tmp_path, "speed.update", "--vocabularies", "300", *SMALL, *TINY_MODEL)
    assert "grpo: d3s" in text and "dapo: d3s" in text and "TRL" in text
    record = json.loads((tmp_path / "update.json").read_text())
    for outcome in record["equal"].values():
        assert outcome["gap"] < 1e-5 and outcome["norm_gap"] < 1e-3
        assert max(map(abs, outcome["d3s"]["loss"])) > 1e-3  # equal, and not all zero
