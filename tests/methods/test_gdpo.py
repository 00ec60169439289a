"""GDPO's advantages against TRL's formula."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import compute_advantages
from d3s.config.schema import RewardConfig

tables = st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=2, max_size=5)


@given(st.data(), st.lists(st.floats(-2, 2), min_size=2, max_size=3))
def test_gdpo_follows_trl(data, weights):
    """TRL: each reward by mean and std + 1e-4 of its group, the weighted sum by those of the batch."""
    first = data.draw(tables)
    shape = st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=len(first), max_size=len(first))
    values = [torch.tensor(t, dtype=torch.float64) for t in [first, *(data.draw(shape) for _ in weights[1:])]]
    functions = [[f"m:f{i}", w] for i, w in enumerate(weights)]
    config = RewardConfig(functions=functions, advantages="d3s.methods.gdpo:gdpo")
    got, divisors = compute_advantages(config, values[0], {f"f{i}": v for i, v in enumerate(values)})
    expected = sum(w * (v - v.mean(1, keepdim=True)) / (v.std(1, keepdim=True) + 1e-4) for w, v in zip(weights, values))
    expected = (expected - expected.mean()) / (expected.std() + 1e-4)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    assert divisors is None


def test_gdpo_counts_the_terms():
    """A function that never differs adds nothing; the length term then decides alone."""
    config = RewardConfig(functions=["m:f", "m:g"], advantages="d3s.methods.gdpo:gdpo")
    parts = {"f": torch.ones(1, 2), "g": torch.zeros(1, 2), "length": torch.tensor([[0.0, -1.0]])}
    parts["f/steps"] = torch.tensor([[7.0, math.nan]])
    got, _ = compute_advantages(config, torch.ones(1, 2), parts)
    assert got[0].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-3)
