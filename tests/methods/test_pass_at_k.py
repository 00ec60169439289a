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


@pytest.mark.parametrize(
    ("k", "rewards", "problem"),
    [
        (4, [0.0, 1.0, 1.0], ".* k must be 1 to G = 3, not 4"),
        (1, [0.0, 1.0, 0.5], "got the reward 0.5, expected 0 or 1"),
    ],
)
def test_wrong_k_and_graded_rewards_are_one_sentence(k, rewards, problem):
    settings = RewardConfig(advantages={"rule": "d3s.methods.pass_at_k:pass_at_k", "k": k})
    with pytest.raises(UserError, match=rf"^reward.advantages: {problem}"):
        compute_advantages(settings, torch.tensor([rewards]))
