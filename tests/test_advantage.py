"""Group-relative advantages against the statistics module, closed forms, and exact zeros."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import center_only, group_advantages, normalize_by_batch, normalize_by_group

SCALES = {"group": normalize_by_group, "batch": normalize_by_batch, "none": center_only}
reward_tables = st.integers(2, 8).flatmap(
    lambda g: st.lists(st.lists(st.floats(-10, 10, width=32), min_size=g, max_size=g), min_size=1, max_size=5)
)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_give_exact_zeros(scale, dtype):
    """The means are not exact in floating point; the last group has a signal. Some rewards may not count."""
    values = torch.tensor([0.1, 1 / 3, -0.7, 1e-30, 1e8 + 0.1, -123456.789, 0.0, 1.0], dtype=dtype)
    for size in (2, 3, 7, 32, 33):
        equal = values[:, None].repeat(1, size)
        mixed = torch.linspace(0, 1, size, dtype=dtype)[None]
        advantages = SCALES[scale](torch.cat([equal, mixed]))[0]
        assert torch.equal(advantages[:-1], torch.zeros_like(equal)) and (advantages[-1] != 0).any()
    rewards = torch.tensor([[0.9, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.0, 1.0, 0.0, 1.0]], dtype=dtype)
    counted = torch.tensor([[False, True, True, True], [True, False, True, True], [True] * 4])
    advantages = SCALES[scale](rewards, counted)[0]
    assert not advantages[:2].any() and advantages[2].all()


@pytest.mark.parametrize("scale", SCALES)
def test_advantages_do_not_depend_on_the_order(scale):
    """Bit for bit, although sums in float32 depend on the order of their terms."""
    g = torch.Generator().manual_seed(0)
    rewards = torch.rand(64, 33, generator=g) * 1000
    order = torch.randperm(33, generator=g)
    shuffled, ordered = (SCALES[scale](table)[0].float() for table in (rewards[:, order], rewards))
    assert torch.equal(shuffled, ordered[:, order])


@pytest.mark.parametrize("scale", SCALES)
@given(rewards=reward_tables, data=st.data())
def test_only_counted_rewards_are_compared(scale, rewards, data):
    """Counted rewards get the advantages of a table of them alone; a group of fewer than two gets zeros."""
    all_count = data.draw(st.booleans())
    counted = [[all_count or data.draw(st.booleans()) for _ in group] for group in rewards]
    got = SCALES[scale](torch.tensor(rewards, dtype=torch.float64), None if all_count else torch.tensor(counted))[0]
    chosen = [list(itertools.compress(*pair)) for pair in zip(rewards, counted)]
    everything = list(itertools.chain(*chosen))
    for row, row_counted, own in zip(got, counted, chosen):
        assert not row[~torch.tensor(row_counted)].any()
        spread = {"group": own, "batch": everything, "none": None}[scale]
        expected = [0.0] * len(own)
        if len(set(own)) > 1:
            divisor = 1 if spread is None else statistics.stdev(spread) + 1e-4
            expected = [(r - statistics.fmean(own)) / divisor for r in own]
        assert row[torch.tensor(row_counted)].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rewards", [torch.zeros(4), torch.zeros(4, 1), torch.tensor([[0.0, math.nan]])])
def test_invalid_input_is_refused(rewards):
    with pytest.raises(ValueError, match=r"rewards must be finite, .*G >= 2"):
        group_advantages(rewards)
