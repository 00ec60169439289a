"""Advantages of the shelf against TRL's formula (GDPO), means in Python floats (MaxRL) and all subsets (Pass@k)."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import compute_advantages
from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.methods.gdpo import gdpo
from d3s.methods.maxrl import maxrl
from d3s.methods.pass_at_k import pass_at_k

tables = st.integers(2, 5).flatmap(
    lambda rows: st.lists(st.lists(st.integers(-3, 3), min_size=4 * rows, max_size=4 * rows), min_size=3, max_size=3)
)


@given(tables, st.lists(st.floats(-2, 2), min_size=2, max_size=3))
def test_gdpo_follows_trl(tables, weights):
    """TRL: each reward by mean and std + 1e-4 of its group, the weighted sum by those of the batch."""
    values = [torch.tensor(table, dtype=torch.float64).view(-1, 4) for table in tables[: len(weights)]]
    got = gdpo(dict(enumerate(values)), dict(enumerate(weights)))
    expected = sum(w * (v - v.mean(1, keepdim=True)) / (v.std(1, keepdim=True) + 1e-4) for w, v in zip(weights, values))
    expected = (expected - expected.mean()) / (expected.std() + 1e-4)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


def test_gdpo_counts_the_terms():
    """A function that never differs adds nothing; the length term then decides alone."""
    config = RewardConfig(functions=["m:f", "m:g"], advantages="d3s.methods.gdpo:gdpo")
    parts = {"f": torch.ones(1, 2), "g": torch.zeros(1, 2), "length": torch.tensor([[0.0, -1.0]])}
    parts["f/steps"] = torch.tensor([[7.0, math.nan]])
    got, _ = compute_advantages(config, torch.ones(1, 2), parts)
    assert got[0].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], abs=1e-3)


CELLS = st.tuples(st.floats(0, 10, width=32), st.booleans())  # reward, and whether it counts


@given(st.integers(2, 8).flatmap(lambda size: st.lists(st.lists(CELLS, min_size=size, max_size=size), min_size=1)))
def test_maxrl_divides_by_the_mean(groups):
    """MaxRL: (r - mean) / mean over the counted, 0 in a group of equal rewards or of none."""
    rewards, counted = torch.tensor(groups, dtype=torch.float64).unbind(2)
    got = maxrl(rewards, counted.bool())[0]
    for values, group in zip(got.tolist(), groups):
        own = [reward for reward, counts in group if counts]
        for value, (reward, counts) in zip(values, group):
            expected = reward / statistics.fmean(own) - 1 if counts and len(set(own)) > 1 else 0.0
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def subset_advantages(group, k):
    """Mean standardized reward of the subsets of k responses that contain each response; population deviation."""
    subsets = list(itertools.combinations(range(len(group)), k))
    best = [max(group[i] for i in subset) for subset in subsets]
    if len(set(best)) < 2:
        return [0.0] * len(group)
    mean, deviation = statistics.fmean(best), statistics.pstdev(best)
    return [
        statistics.fmean((value - mean) / deviation for subset, value in zip(subsets, best) if i in subset)
        for i in range(len(group))
    ]


@given(data=st.data(), size=st.integers(2, 8), k=st.integers(1, 8))
def test_pass_at_k_advantages_match_all_subsets(data, size, k):
    k = min(k, size)
    binary = st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size)
    rewards = data.draw(st.lists(binary, min_size=1, max_size=4))
    got = pass_at_k(torch.tensor(rewards, dtype=torch.float64), k)
    for row, group in zip(got, rewards):
        assert row.tolist() == pytest.approx(subset_advantages(group, k), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("rule", "rewards", "problem"),
    [
        ("d3s.methods.maxrl:maxrl", [0.0, 1.0, -0.25], "got the reward -0.25, expected at least 0 with d3s"),
        ({"rule": "d3s.methods.pass_at_k:pass_at_k", "k": 1}, [0.0, 1.0, 0.5], "got the reward 0.5, expected 0 or 1"),
    ],
)
def test_other_rewards_are_one_sentence(rule, rewards, problem):
    with pytest.raises(UserError, match=f"^reward.advantages: {problem}"):
        compute_advantages(RewardConfig(advantages=rule), torch.tensor([rewards]))
