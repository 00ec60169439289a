"""Selections of the shelf against sorting and brute force over subsets, and through the options."""

import itertools
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.advantage import group_advantages
from d3s.methods.cppo import largest
from d3s.methods.ragen import groups_of_variance_mass
from d3s.methods.two_stage import two_stage
from d3s.selector import select_rollouts
from tests.helpers.selection import ALL, REWARDS, config, downsample
from tests.helpers.subsets import frequencies, seeded, value_tables, variance

# --- CPPO -------------------------------------------------------------------------------------------------------------


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


# --- RAGEN-2 ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([0.0, 0.25, 1 / 3, 0.1, 7.0]), min_size=1, max_size=9), st.integers(1, 100))
def test_variance_mass_needs_the_fewest_groups(variances, percent):
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


# --- two stages -------------------------------------------------------------------------------------------------------


def best(cells: dict[tuple[int, int], float], size: int) -> set[tuple[int, int]]:
    """The subset of this size with the largest variance, or all of fewer."""
    subsets = itertools.combinations(cells, min(size, len(cells)))
    return set(max(subsets, key=lambda subset: variance([cells[cell] for cell in subset]) if subset else 0.0))


def test_two_stages_match_brute_force():
    """Values are drawn from a continuum, so that no two subsets tie; some rollouts are not eligible."""
    rng, differs = random.Random(0), 0
    for _ in range(150):
        groups, size, keep = rng.choice([(2, 6, 2), (3, 5, 2), (3, 4, 1), (2, 7, 3)])
        scales = [rng.choice([0.1, 1.0, 3.0]) for _ in range(groups)]
        table = [[scale * rng.gauss(0, 1) for _ in range(size)] for scale in scales]
        eligible = [[rng.random() < 0.9 for _ in row] for row in table]
        first = {}
        for g, row in enumerate(table):
            cells = {(g, i): value for i, value in enumerate(row) if eligible[g][i]}
            first |= {cell: cells[cell] for cell in best(cells, 2 * keep)}
        values = torch.tensor(table, dtype=torch.float64)
        chosen = two_stage(values, keep, torch.tensor(eligible), seeded(0))
        assert {tuple(cell) for cell in chosen.nonzero().tolist()} == best(first, keep * groups)
        differs += not torch.equal(chosen, select_rollouts(values, keep, 1.0, seeded(0), torch.tensor(eligible)))
    assert differs > 10


def test_first_stage_of_all_is_the_plain_selection():
    values = torch.randint(0, 2, (4, 8), generator=seeded(1)).double()
    for stage in (2, 4, 9):
        expected = select_rollouts(values, 4, 1.0, seeded(2))
        assert torch.equal(two_stage(values, 4, torch.ones(4, 8, dtype=torch.bool), seeded(2), stage), expected)
