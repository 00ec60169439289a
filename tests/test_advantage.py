"""Group-relative advantages against the statistics module, closed forms, all subsets of k, and exact zeros."""

import itertools
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import group_advantages, pass_at_k_advantages

SCALES = ("group", "batch", "none")
reward_tables = st.tuples(st.integers(1, 5), st.integers(2, 8)).flatmap(
    lambda shape: st.lists(
        st.lists(st.floats(-10, 10, width=32), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


def expected_advantages(rewards, scale):
    """Advantages of each group by the statistics module, in Python floats."""
    everything = [r for group in rewards for r in group]
    table = []
    for group in rewards:
        mean = statistics.fmean(group)
        spread = {"group": statistics.stdev(group), "batch": statistics.stdev(everything), "none": None}[scale]
        table.append([0.0 if len(set(group)) == 1 else r - mean for r in group])
        if spread is not None:
            table[-1] = [a / (spread + 1e-4) for a in table[-1]]
    return table


@pytest.mark.parametrize("scale", SCALES)
@given(rewards=reward_tables)
def test_advantages_match_the_statistics_module(scale, rewards):
    got = group_advantages(torch.tensor(rewards, dtype=torch.float64), scale)
    torch.testing.assert_close(
        got, torch.tensor(expected_advantages(rewards, scale), dtype=torch.float64), rtol=1e-9, atol=1e-9
    )


def test_binary_rewards_match_the_closed_form():
    """With k of G right, the deviation with Bessel's correction is sqrt(k (G - k) / (G (G - 1)))."""
    size = 32
    for right in range(1, size):
        deviation = math.sqrt(right * (size - right) / (size * (size - 1)))
        rewards = torch.tensor([[1.0] * right + [0.0] * (size - right)], dtype=torch.float64)
        good, bad = (1 - right / size) / (deviation + 1e-4), -right / size / (deviation + 1e-4)
        expected = torch.tensor([[good] * right + [bad] * (size - right)], dtype=torch.float64)
        torch.testing.assert_close(group_advantages(rewards), expected, rtol=1e-9, atol=0)
        torch.testing.assert_close(group_advantages(rewards.float()), expected.float(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("advantages", [group_advantages, lambda rewards: pass_at_k_advantages(rewards, 2)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_integer_rewards_have_exact_advantages(advantages, dtype):
    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]])
    assert torch.equal(advantages(rewards.to(dtype)), advantages(rewards.float()))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_give_exact_zeros(scale, dtype):
    """The means are not exact in floating point; the last group has a signal."""
    values = torch.tensor([0.1, 1 / 3, -0.7, 1e-30, 1e8 + 0.1, -123456.789, 0.0, 1.0], dtype=dtype)
    for size in (2, 3, 7, 32, 33):
        equal = values[:, None].repeat(1, size)
        mixed = torch.linspace(0, 1, size, dtype=dtype)[None]
        advantages = group_advantages(torch.cat([equal, mixed]), scale)
        assert torch.equal(advantages[:-1], torch.zeros_like(equal))
        assert (advantages[-1] != 0).any()


@pytest.mark.parametrize("scale", SCALES)
def test_equal_counted_rewards_give_exact_zeros(scale):
    """The others differ; the mean of 0.1 is not exact in floating point."""
    rewards = torch.tensor([[0.9, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    counted = torch.tensor([[False, True, True, True], [True, False, True, True], [True] * 4])
    advantages = group_advantages(rewards, scale, counted)
    assert not advantages[:2].any() and advantages[2].all()


@pytest.mark.parametrize("scale", SCALES)
def test_advantages_do_not_depend_on_the_order(scale):
    """Bit for bit, although sums in float32 depend on the order of their terms."""
    g = torch.Generator().manual_seed(0)
    rewards = torch.rand(64, 33, generator=g) * 1000
    order = torch.randperm(33, generator=g)
    assert torch.equal(group_advantages(rewards[:, order], scale), group_advantages(rewards, scale)[:, order])


def test_scales_differ_in_how_groups_compare():
    """ "group" removes the size of a group's rewards, "batch" keeps it."""
    rewards = torch.tensor([[0.0, 1.0], [0.0, 10.0]])
    by_group = group_advantages(rewards)
    torch.testing.assert_close(by_group[0], by_group[1], rtol=1e-3, atol=0)  # equal except for the 1e-4
    by_batch = group_advantages(rewards, "batch")
    assert by_batch[1, 1] == pytest.approx(10 * by_batch[0, 1].item())


@pytest.mark.parametrize("scale", SCALES)
@given(rewards=reward_tables, data=st.data())
def test_only_counted_rewards_are_compared(scale, rewards, data):
    """Counted rewards get the advantages of a table of them alone; a group of fewer than two gets zeros."""
    counted = [[data.draw(st.booleans()) for _ in group] for group in rewards]
    got = group_advantages(torch.tensor(rewards, dtype=torch.float64), scale, torch.tensor(counted))
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


# --- MaxRL ------------------------------------------------------------------------------------------------------------

nonnegative_tables = reward_tables.map(lambda table: [[abs(r) for r in group] for group in table])


@given(rewards=nonnegative_tables, data=st.data())
def test_scale_mean_divides_by_the_mean(rewards, data):
    """MaxRL: (r - mean) / mean over the counted, 0 in a group of equal rewards or of none."""
    counted = [[data.draw(st.booleans()) for _ in group] for group in rewards]
    got = group_advantages(torch.tensor(rewards, dtype=torch.float64), "mean", torch.tensor(counted))
    for row, row_counted, group in zip(got.tolist(), counted, rewards):
        own = list(itertools.compress(group, row_counted))
        for value, reward, here in zip(row, group, row_counted):
            expected = reward / statistics.fmean(own) - 1 if here and len(set(own)) > 1 else 0.0
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_scale_mean_weights_hard_problems():
    """With c of G right: G / c - 1 for each right answer and -1 for each wrong one; 0 where none is right."""
    rewards = torch.tensor([[1.0] * c + [0.0] * (8 - c) for c in range(9)])
    advantages = group_advantages(rewards, "mean")
    assert not advantages[0].any() and not advantages[8].any()
    for c in range(1, 8):
        assert advantages[c].tolist() == pytest.approx([8 / c - 1] * c + [-1.0] * (8 - c))


# --- Pass@k -----------------------------------------------------------------------------------------------------------


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


@given(data=st.data(), size=st.integers(2, 8), k=st.integers(1, 9))
def test_pass_at_k_advantages_match_all_subsets(data, size, k):
    binary = st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size)
    rewards = data.draw(st.lists(binary, min_size=1, max_size=4))
    got = pass_at_k_advantages(torch.tensor(rewards, dtype=torch.float64), k)
    for row, group in zip(got, rewards):
        assert row.tolist() == pytest.approx(subset_advantages(group, k), rel=1e-9, abs=1e-9)


def test_pass_at_one_is_the_group_deviation():
    """With k = 1 they are GRPO's, with the population's deviation and without a floor."""
    rewards = torch.tensor([[1.0] * c + [0.0] * (6 - c) for c in range(7)], dtype=torch.float64)
    centered = rewards - rewards.mean(1, keepdim=True)
    expected = torch.nan_to_num(centered / rewards.std(1, correction=0, keepdim=True))
    torch.testing.assert_close(pass_at_k_advantages(rewards, 1), expected)


def test_pass_at_k_ignores_what_is_solved():
    """A group with less than k wrong answers passes with every subset, so nothing can be gained."""
    rewards = torch.tensor([[1.0] * c + [0.0] * (32 - c) for c in range(33)])
    for k in (2, 8, 16, 32):
        active = pass_at_k_advantages(rewards, k).any(1).tolist()
        assert active == [0 < c <= 32 - k for c in range(33)]


@pytest.mark.parametrize(
    ("rewards", "k", "message"),
    [
        (torch.tensor([[0.0, 0.5]]), 1, "0 or 1"),
        (torch.tensor([[0.0, -1.0]]), 1, "0 or 1"),
        (torch.tensor([[0.0, math.nan]]), 1, "0 or 1"),
        (torch.zeros(4), 1, "B, G"),
        (torch.zeros(2, 2), 0, "k >= 1"),
    ],
)
def test_invalid_pass_at_k_input_is_refused(rewards, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k_advantages(rewards, k)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "scale", "message"),
    [
        (torch.zeros(4), "group", "must be"),
        (torch.zeros(2, 2, 2), "group", "must be"),
        (torch.zeros(4, 1), "group", "G >= 2"),
        (torch.tensor([[0.0, math.nan]]), "group", "finite"),
        (torch.tensor([[0.0, math.inf]]), "none", "finite"),
        (torch.tensor([[1.0, -0.5]]), "mean", "negative"),
        (torch.zeros(2, 2), "std", "'std'"),
    ],
)
def test_invalid_input_is_refused(rewards, scale, message):
    with pytest.raises(ValueError, match=message):
        group_advantages(rewards, scale)
