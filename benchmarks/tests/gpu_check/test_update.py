"""The stage `update`: all sides on the CPU, and its judgments on results by hand."""

import pytest

from benchmarks.gpu_check import update
from benchmarks.tests.stages import judged, not_held

SELECTED = ["D3S, N = G/4, K = 5 %", "D3S, N = 5/8 G, K = 12.5 %", "d3s without selection"]


def test_all_sides_are_timed_on_the_cpu(without_generated_code):
    *rows, change = update.run("cpu", 100)
    names = [*SELECTED, update.COMPILED, "dense GRPO", "TRL"]
    assert [row.what for row in rows] == [f"tiny at 16: {name}" for name in names]
    assert rows[-1].measured.startswith(("not installed", "0.")) and not judged(rows)
    assert all("scaled_dot_product_flash_attention_for_cpu" in row.measured for row in rows[:5])
    assert change.held and change.what == "tiny at 16: change of the gradient norm by compiling"


@pytest.fixture
def run_by_hand(monkeypatch):
    """run_by_hand(results, seconds) judges these results as those of a GPU."""

    def run(results, seconds=600.0):
        monkeypatch.setitem(update.CASES, "cuda", [("0.5B", 1024)])
        monkeypatch.setattr(update, "sides", lambda shape, length, args: (None, {name: name for name in results}))
        monkeypatch.setattr(update, "attempt", lambda name: results[name])
        return list(update.run("cuda", seconds))

    return run


def result(seconds: float, *operators: str) -> dict:
    return {"seconds": [seconds], "peak_gb": 1.0, "attention": list(operators)}


def test_slow_and_padded_updates_are_noticed(run_by_hand):
    good = {name: result(1.0, "varlen_attn") for name in SELECTED} | {"dense GRPO": result(1.0, "any")}
    assert not not_held(run_by_hand(good | {"TRL": {"failed": "not installed (trl)"}}))
    padded = good | {SELECTED[0]: result(0.1, "scaled_dot_product_efficient_attention", "varlen_attn")}
    assert not_held(run_by_hand(padded)) == [f"0.5B at 1024: {SELECTED[0]}: attention"]
    slow = good | {SELECTED[2]: result(1.3, "varlen_attn")}
    assert not_held(run_by_hand(slow)) == ["0.5B at 1024: d3s without selection to dense GRPO"]
    norms = zip((SELECTED[2], update.COMPILED), (1.0, 1.02))
    compiled = {name: result(1.0, "varlen_attn") | {"grad_norm": norm} for name, norm in norms}
    assert not_held(run_by_hand(compiled)) == ["0.5B at 1024: change of the gradient norm by compiling"]


def test_sides_without_time_or_memory_are_listed(run_by_hand):
    rows = run_by_hand({SELECTED[0]: {"failed": "out of memory"}, "dense GRPO": result(1.0, "any")})
    assert [row.measured for row in rows] == ["out of memory", "1.000 s, peak 1.0 GB, any"]
    rows = run_by_hand({"dense GRPO": result(1.0, "any")}, seconds=10)
    assert [(row.what, row.measured) for row in rows] == [("no time left for", "0.5B at 1024: dense GRPO")]
