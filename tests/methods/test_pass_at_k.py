"""Pass@k advantages against all subsets of k responses."""

import itertools
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import compute_advantages
from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.methods.pass_at_k import pass_at_k


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


def test_pass_at_one_is_the_group_deviation():
    """With k = 1 they are GRPO's, with the population's deviation and without a floor."""
    rewards = torch.tensor([[1.0] * c + [0.0] * (6 - c) for c in range(7)], dtype=torch.float64)
    centered = rewards - rewards.mean(1, keepdim=True)
    expected = torch.nan_to_num(centered / rewards.std(1, correction=0, keepdim=True))
    torch.testing.assert_close(pass_at_k(rewards, 1), expected)


def test_pass_at_k_ignores_what_is_solved():
    """A group with less than k wrong answers passes with every subset, so nothing can be gained."""
    rewards = torch.tensor([[1.0] * c + [0.0] * (32 - c) for c in range(33)])
    for k in (2, 8, 16, 32):
        active = pass_at_k(rewards, k).any(1).tolist()
        assert active == [0 < c <= 32 - k for c in range(33)]


def test_more_than_the_group_is_one_sentence():
    settings = RewardConfig(advantages={"rule": "d3s.methods.pass_at_k:pass_at_k", "k": 4})
    with pytest.raises(UserError, match=r"^reward.advantages: .* k must be 1 to G = 3, not 4"):
        compute_advantages(settings, torch.tensor([[0.0, 1.0, 1.0]]))


def test_graded_rewards_are_one_sentence():
    settings = RewardConfig(advantages={"rule": "d3s.methods.pass_at_k:pass_at_k", "k": 1})
    with pytest.raises(UserError, match=r"^reward.advantages: got the reward 0.5, expected 0 or 1 "):
        compute_advantages(settings, torch.tensor([[0.0, 1.0, 0.5]]))
