"""The estimate of a step's time: amounts of work by hand, and the sentence that the dry run prints."""

import json

import pytest

from d3s.config.load import load_config
from d3s.flops import ModelShape
from d3s.memory import SHIPPED, Placement, find_shape
from d3s.plan.step_time import config_work, estimate_seconds, step_work
from tests.helpers.configs import ROOT, SMALL

QWEN_1B = SHIPPED["Qwen/Qwen2.5-Math-1.5B"]


def test_step_work_by_hand():
    shape = ModelShape(hidden=8, layers=1, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocabulary=100, tied=True)
    trunk, norms = 8 * (8 + 4 + 4) + 8 * 8 + 3 * 8 * 16, 2 * 8 + 8
    work = step_work(shape, rollouts=10, length=5, forwarded=30, selected=7, engine_rows=4, updates=2)
    assert work["generate"] == {
        "calls": 5 * 3, "tokens": 50, "trunk": 50 * 2 * trunk, "head": 50 * 1600, "vocabulary": 5000
    }  # fmt: skip
    parameters = trunk + norms + 800
    assert work["update"] == {"calls": 2, "trunk": 30 * 6 * trunk, "head": 7 * 6400, "parameters": 2 * parameters}
    assert work["sync"] == {"calls": 1, "parameters": parameters}


def test_config_work_counts_passes_and_updates():
    """The first step keeps 64 rollouts of 63 tokens with a prediction, and 5 % of them."""
    config, shape = load_config(SMALL), find_shape("tiny:precedence")
    work = config_work(config, shape, 0, 0)
    expected = step_work(
        shape, rollouts=256, length=64, forwarded=64 * 63, selected=0.05 * 64 * 63, engine_rows=256, updates=2
    )
    assert work == expected
    once = config_work(config, shape, 0, 1)["update"]
    head, trunk = work["update"]["head"], work["update"]["trunk"]
    assert once["trunk"] == pytest.approx(trunk * 4 / 3)  # forward alone: a third of forward and backward
    assert once["head"] == pytest.approx(head + head / 0.05 / 4)  # the logits of all tokens, computed once, not 4 times


def test_estimate_needs_a_measurement_of_the_same_kind(tmp_path, monkeypatch):
    config = load_config(SMALL, ["schedule.n_shape=constant", "schedule.k_shape=constant"])
    shape = find_shape("tiny:precedence")
    monkeypatch.setattr("d3s.plan.step_time.MEASURED", tmp_path / "scaling.json")
    assert "unknown; make bench-scaling measures" in estimate_seconds(config, shape, Placement(), 0, "none")
    units = {phase: dict.fromkeys(kinds, 0.0) for phase, kinds in config_work(config, shape, 0, 0).items()}
    units["generate"]["tokens"], units["update"]["calls"] = 1e-3, 0.5
    record = {"machine": {"gpu": "none"}, "dtype": "float32", "units": units}
    (tmp_path / "scaling.json").write_text(json.dumps(record))
    text = estimate_seconds(config, shape, Placement(), 0, "none")
    assert "step, at most: 17 in the first, 17 in the last (generate 16 to 16, update 1 to 1, sync 0 to 0)" in text
    assert f"run: {(256 * 64 * 1e-3 + 2 * 0.5) * 110 / 60:.1f} minutes" in text
    for other in (
        estimate_seconds(config, shape, Placement(2), 0, "none"),
        estimate_seconds(config, shape, Placement(), 0, "a card"),
        estimate_seconds(load_config([ROOT / "configs/qwen2.5-math-1.5b.yaml"]), QWEN_1B, Placement(), 0, "none"),
    ):
        assert other.endswith("unknown; make bench-scaling measured one process with vLLM, GPU none, float32.")
