"""The selection of rollouts against the pure selectors and hand-computed advantages."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import ADVANTAGE_RULES, group_advantages
from d3s.config.load import load_config
from d3s.selector import select_rollouts
from tests.helpers.selection import ALL, REWARDS, config, downsample
from tests.helpers.subsets import seeded, value_tables


def test_d3s_selects_across_normalized_groups():
    advantages, kept = downsample(config(), REWARDS, ALL, 4, seeded(0))
    assert torch.equal(advantages, group_advantages(REWARDS))
    assert int(kept.sum()) == 12 and not kept[2].any()  # a group of equal rewards has no signal


@given(value_tables(3, 6), st.data(), st.sampled_from(["group", "batch", "none"]))
def test_pods_normalizes_over_selected_eligible(table, data, scale):
    """The reference is the statistics module, for any rewards and any eligible rollouts."""
    keep, rewards = data.draw(st.integers(2, len(table[0]))), torch.tensor(table, dtype=torch.float64)
    eligible = torch.tensor([[data.draw(st.booleans()) for _ in row] for row in table])
    overrides = [f"rollout.num_generations={len(table[0])}", "schedule.n_init=2", "schedule.n_final=null"]
    pods = load_config(["configs/method/pods.yaml"], [*overrides, f"reward.advantages={scale}"])
    advantages, kept = downsample(pods, rewards, eligible, keep, seeded(0))
    assert kept.sum(1).tolist() == eligible.sum(1).clamp(max=keep).tolist()
    assert not advantages[~kept].any()
    batch_rewards = rewards[kept].tolist()
    for row, kept_row, row_advantages in zip(rewards, kept, advantages):
        group_rewards = row[kept_row].tolist()
        if len(set(group_rewards)) > 1:
            sample = {"group": group_rewards, "batch": batch_rewards, "none": None}[scale]
            deviation = 1 if sample is None else statistics.stdev(sample) + 1e-4
            expected = [(r - statistics.fmean(group_rewards)) / deviation for r in group_rewards]
            assert row_advantages[kept_row].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        else:
            assert not row_advantages.any()


@pytest.mark.parametrize("scale", ["batch", "none"])
def test_rule_of_advantages_is_applied(scale):
    advantages, _ = downsample(config(f"reward.advantages={scale}"), REWARDS, ALL, 4, seeded(0))
    assert torch.equal(advantages, ADVANTAGE_RULES.builtin[scale](REWARDS)[0].float())


OPTIONS = ["cross_share=1", "cross_share=0", "cross_share=0.5", "rollouts=random", "normalize=after"]


@pytest.mark.parametrize("option", OPTIONS)
def test_ineligible_rollouts_are_never_selected(option):
    """Ineligible rollouts have advantage 0, also where no rollout is eligible."""
    within = ["selector.cross_share=0"] if option == "normalize=after" else []
    settings = config(f"selector.{option}", *within)
    eligible = ALL.clone()
    eligible[0, 0] = eligible[1, 5] = False  # the first group loses its only right answer
    for seed in range(20):
        advantages, kept = downsample(settings, REWARDS, eligible, 4, seeded(seed))
        assert kept.any() and not kept[~eligible].any() and not advantages[~eligible].any()
    advantages, kept = downsample(settings, REWARDS, torch.zeros_like(ALL), 4, seeded(0))
    assert not kept.any() and not advantages.any()


def test_zero_advantages_can_be_dropped():
    settings = config("selector.rollouts=d3s.methods.nonzero:nonzero")
    for n, counts in ((4, None), (8, [8, 8, 0])):
        advantages, kept = downsample(settings, REWARDS, ALL, n, seeded(0))
        assert kept.any() and advantages[kept].all() and not kept[2].any()
        assert counts is None or kept.sum(1).tolist() == counts


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_cross_share_is_applied(share):
    """As given by the caller, which may replace the option, with the random numbers of that selection."""
    advantages, kept = downsample(config("selector.cross_share=0.7"), REWARDS, ALL, 4, seeded(5), share)
    assert torch.equal(kept, select_rollouts(advantages, 4, share, seeded(5)))
