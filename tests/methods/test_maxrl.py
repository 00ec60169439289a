"""MaxRL's advantages against means in Python floats."""

import itertools
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import compute_advantages
from d3s.common import UserError
from d3s.config.schema import RewardConfig
from d3s.methods.maxrl import maxrl

nonnegative_tables = st.tuples(st.integers(1, 5), st.integers(2, 8)).flatmap(
    lambda shape: st.lists(
        st.lists(st.floats(0, 10, width=32), min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    )
)


@given(rewards=nonnegative_tables, data=st.data())
def test_maxrl_divides_by_the_mean(rewards, data):
    """MaxRL: (r - mean) / mean over the counted, 0 in a group of equal rewards or of none."""
    counted = [[data.draw(st.booleans()) for _ in group] for group in rewards]
    got = maxrl(torch.tensor(rewards, dtype=torch.float64), torch.tensor(counted))[0]
    for row, row_counted, group in zip(got.tolist(), counted, rewards):
        own = list(itertools.compress(group, row_counted))
        for value, reward, here in zip(row, group, row_counted):
            expected = reward / statistics.fmean(own) - 1 if here and len(set(own)) > 1 else 0.0
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_negative_rewards_are_one_sentence():
    settings = RewardConfig(advantages="d3s.methods.maxrl:maxrl")
    with pytest.raises(UserError, match=r"^reward.advantages: got the reward -0.25, expected at least 0 "):
        compute_advantages(settings, torch.tensor([[0.0, 1.0, -0.25]]))
