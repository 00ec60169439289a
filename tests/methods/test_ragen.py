"""The variance filter against every subset of the groups, and through the options."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import group_advantages
from d3s.common import UserError
from d3s.methods.ragen import groups_of_variance_mass
from d3s.plan.trials import attempt_rules
from tests.helpers.selection import ALL, REWARDS, config, downsample
from tests.helpers.subsets import seeded


@given(st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 0.1, 7.0]), min_size=1, max_size=9), st.integers(1, 100))
def test_variance_mass_needs_the_fewest_groups(variances, percent):
    """Against every subset of the groups."""
    chosen = groups_of_variance_mass(torch.tensor(variances, dtype=torch.float64), percent / 100, seeded(0)).tolist()
    needed = percent / 100 * math.fsum(variances) * (1 - 1e-8)
    sizes = range(len(variances) + 1)
    fewest = next(n for n in sizes if any(math.fsum(s) >= needed for s in itertools.combinations(variances, n)))
    kept = list(itertools.compress(variances, chosen))
    assert len(kept) == fewest and math.fsum(kept) >= needed and all(kept)


def test_variance_mass_is_exact_despite_rounding():
    """Nine of ten equal groups hold 0.9, although the sum in floats is a little less."""
    chosen = [groups_of_variance_mass(torch.full((10,), 0.1), 0.9, seeded(seed)) for seed in range(20)]
    assert {int(mask.sum()) for mask in chosen} == {9} and len({tuple(mask.tolist()) for mask in chosen}) > 1
    assert not groups_of_variance_mass(torch.zeros(3), 1.0).any()


@pytest.mark.parametrize("cross", [1, 0])
@pytest.mark.parametrize(("share", "groups"), [(0.5, [1]), (0.6, [1]), (0.7, [0, 1]), (1.0, [0, 1])])
def test_problems_without_variance_mass_are_dropped(share, groups, cross):
    """The variances are 7/64, 15/64 and 0, times 8/7: the second problem holds 0.68 of the sum."""
    rule = f"selector.rollouts={{rule: d3s.methods.ragen:variance_mass, share: {share}}}"
    settings = config(rule, f"selector.cross_share={cross}")
    advantages, kept = downsample(settings, REWARDS, ALL, 4, seeded(0))
    assert kept.any(1).nonzero()[:, 0].tolist() == groups
    assert int(kept.sum()) == (min(12, 8 * len(groups)) if cross else 4 * len(groups))
    assert torch.equal(advantages[groups], group_advantages(REWARDS)[groups])


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_invalid_share_is_refused_before_a_run(share):
    settings = config(f"selector.rollouts={{rule: d3s.methods.ragen:variance_mass, share: {share}}}")
    with pytest.raises(UserError, match=r"^selector\.rollouts: .* share must be in \(0, 1\]"):
        attempt_rules(settings)
