"""The work of a step, by hand."""

import pytest

from benchmarks.speed.step_time import config_work, step_work
from d3s.config.load import load_config
from d3s.flops import ModelShape
from d3s.shapes import find_shape
from tests.helpers.configs import SMALL


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
