"""CPPO's selection against sorting, and frequencies over seeds."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.methods.cppo import largest
from tests.helpers.subsets import frequencies, seeded, value_tables


@given(value_tables(3, 6), st.data(), st.booleans())
def test_largest_rollouts_match_sorting(table, data, cross):
    keep = data.draw(st.integers(1, len(table[0])))
    eligible = [[data.draw(st.booleans()) for _ in row] for row in table]
    advantages = torch.tensor(table, dtype=torch.float64)
    chosen = largest(advantages, keep, torch.tensor(eligible), cross, seeded(0)).tolist()
    pools = list(zip(table, eligible, chosen))
    if cross:
        pools = [tuple(list(itertools.chain(*rows)) for rows in (table, eligible, chosen))]
    for values, allowed, mask in pools:
        magnitudes = sorted((abs(v) for v, a in zip(values, allowed) if a), reverse=True)
        size = keep * len(table) if cross else keep
        assert not any(m and not a for m, a in zip(mask, allowed))
        assert sorted((abs(v) for v, m in zip(values, mask) if m), reverse=True) == magnitudes[:size]


@pytest.mark.parametrize("cross", [True, False])
def test_largest_rollouts_break_ties_uniformly(cross):
    """Of one right answer in four and one wrong in four, the rare ones are always kept, the others equally often."""
    advantages = torch.tensor([[1.5, -0.5, -0.5, -0.5], [0.5, 0.5, 0.5, -1.5]])
    shares, tolerance = frequencies(lambda g: largest(advantages, 2, advantages < 9, cross, g))
    expected = torch.tensor([[1, 1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3, 1]])
    assert (shares - expected).abs().max() < tolerance
