"""Both levels of selection against brute force, sorting, and frequencies over seeds."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from d3s.selector import random_rollouts, select_rollouts, top_tokens
from tests.helpers.subsets import best_variance, frequencies, seeded, value_tables, variance

# --- rollouts ---------------------------------------------------------------------------------------------------------


@given(value_tables(3, 6), st.data())
def test_selection_is_optimal_among_the_eligible(table, data):
    """Within and across groups, and where fewer than `keep` are eligible; against every subset of that size."""
    keep = data.draw(st.integers(1, len(table[0])))
    all_eligible = data.draw(st.booleans())
    mask = [[all_eligible or data.draw(st.booleans()) for _ in row] for row in table]
    advantages, eligible = torch.tensor(table, dtype=torch.float64), torch.tensor(mask)
    within = select_rollouts(advantages, keep, 0.0, eligible=eligible)
    across = select_rollouts(advantages, keep, eligible=eligible)
    assert not (within & ~eligible).any() and not (across & ~eligible).any()
    pools = [(list(itertools.compress(row, m)), keep, row, c) for row, m, c in zip(table, mask, within.tolist())]
    all_values = list(itertools.chain(*table))
    allowed = list(itertools.compress(all_values, itertools.chain(*mask)))
    if math.comb(len(allowed), min(keep * len(table), len(allowed))) < 2_000:
        pools.append((allowed, keep * len(table), all_values, across.flatten().tolist()))
    for pool, size, row, chosen in pools:
        size = min(size, len(pool))
        assert sum(chosen) == size
        if size:
            got = variance(list(itertools.compress(row, chosen)))
            assert got == pytest.approx(best_variance(pool, size), rel=1e-7, abs=1e-30)


@given(st.integers(0, 1000), st.integers(1, 64))
def test_no_exchange_of_rollouts_adds_variance(seed, keep):
    """Of 64, too many for every subset."""
    values = torch.randn(64, generator=seeded(seed), dtype=torch.float64).exp()
    chosen = select_rollouts(values[None], keep)[0]
    kept, dropped = values[chosen], values[~chosen]
    mean, square = ((x.sum() - x[:, None] + y) / keep for x, y in ((kept, dropped), (kept**2, dropped**2)))
    assert ((square - mean**2) <= variance(kept.tolist()) + 1e-9).all()


@given(value_tables(3, 6), st.data(), st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
def test_every_selector_fills_its_budget(table, data, cross_share):
    keep = data.draw(st.integers(1, len(table[0])))
    advantages = torch.tensor(table, dtype=torch.float64)
    eligible = torch.tensor([[data.draw(st.booleans()) for _ in row] for row in table])
    total = min(keep * len(table), int(eligible.sum()))
    per_group = eligible.sum(1).clamp(max=keep).tolist()
    best = select_rollouts(advantages, keep, cross_share, seeded(0), eligible)
    for chosen in (best, random_rollouts(eligible, keep, cross_share, seeded(0))):
        assert not (chosen & ~eligible).any()
        assert int(chosen.sum()) == total if cross_share else chosen.sum(1).tolist() == per_group
    chosen = select_rollouts(advantages, keep, cross_share, seeded(0))
    assert int(chosen.sum(1).min()) >= 2 * math.floor((1 - cross_share) * keep / 2)


@given(value_tables(1, 12), st.data(), st.booleans())
def test_selections_keep_variance(table, data, bessel):
    """Lemma 1 of D3S: for sample variances it holds for every N >= 2, for population variances for every even N."""
    row = torch.tensor(table, dtype=torch.float64)
    assume(variance(table[0]) > 1e-15)
    row = (row - row.mean()) / row.std(correction=int(bessel))
    keep = data.draw(st.integers(2, row.shape[1])) if bessel else 2 * data.draw(st.integers(1, row.shape[1] // 2))
    assert row[select_rollouts(row, keep)].var(correction=int(bessel)) >= 1 - 1e-9


def test_ties_are_uniform_over_optimal_subsets():
    """Against all subsets: equally good multisets of values are drawn equally often, and so are the sets of each.

    The values have equal distances, so that many subsets are equally good, although the values are rounded.
    """
    draws, places = 2_000, 2 ** torch.arange(6)
    for size in range(3, 7):
        for values in itertools.combinations_with_replacement((0.1, 0.9, 1.7), size):
            for keep in range(2, size):
                subsets = list(itertools.combinations(range(size), keep))
                kinds = {subset: tuple(values[i] for i in subset) for subset in subsets}
                best = best_variance(values, keep)
                optimal = [subset for subset in subsets if math.isclose(variance(kinds[subset]), best, abs_tol=1e-12)]
                of_kind = Counter(kinds[subset] for subset in optimal)
                table = torch.tensor([values] * draws, dtype=torch.float64)
                chosen = select_rollouts(table, keep, 0.0, seeded(size * keep))
                drawn = (chosen.long() @ places[:size]).bincount(minlength=2**size)  # by the subset's bits
                assert drawn[[sum(2**i for i in subset) for subset in optimal]].sum() == draws
                for subset in optimal:
                    share = 1 / len(of_kind) / of_kind[kinds[subset]]
                    tolerance = 5 * math.sqrt(share * (1 - share) / draws) + 1e-12
                    assert abs(drawn[sum(2**i for i in subset)] / draws - share) < tolerance, (values, keep, subset)


@pytest.mark.parametrize(
    ("advantages", "keep"), [([[0.0] * 4], 0), ([[0.0] * 4], 5), ([0.0] * 4, 2), ([[0.0, math.nan]], 1)]
)
def test_invalid_rollout_selections_are_refused(advantages, keep):
    with pytest.raises(ValueError, match=r"need finite advantages \[B, G\] and 1 <= keep <= G"):
        select_rollouts(torch.tensor(advantages), keep)


@pytest.mark.parametrize(
    ("share", "keep", "few", "groups_with_more"), [(0.5, 10, 4, 2), (0.25, 2, 0, 3), (0.5, 4, 2, 0), (0.8, 10, 2, 0)]
)
def test_part_of_a_pair_goes_to_random_groups(share, keep, few, groups_with_more):
    """The last group alone would fill the batch: the others keep only what they reserve.

    In floats (1 - 0.8) * 10 is a little less than 2.
    """
    advantages = torch.tensor([[-1.0, 1.0] * 30] * 3 + [[-9.0, 9.0] * 30])
    frequency = torch.zeros(3)
    for seed in range(100):
        counts = select_rollouts(advantages, keep, share, seeded(seed))[:3].sum(1)
        assert {few, few + 2} >= set(counts.tolist())
        assert groups_with_more - 1 <= int((counts > few).sum()) <= groups_with_more
        frequency += (counts > few) / 100
    assert (frequency - groups_with_more / 4).abs().max() < 0.2


def test_mixed_selection_reserves_pairs():
    """A single value has variance 0, so it would be random; a pair holds the extremes of its group."""
    advantages = torch.tensor([[-1.0, 0, 0, 0, 0, 0, 0, 1.0]] * 2 + [[-9.0, 9] * 4] * 2)
    for seed in range(20):
        chosen = select_rollouts(advantages, 4, 0.5, seeded(seed))
        assert chosen[:2].tolist() == [[True, *[False] * 6, True]] * 2 and int(chosen.sum()) == 16


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_random_rollouts_are_uniform(share):
    eligible = torch.ones(3, 4, dtype=torch.bool)
    masks = [random_rollouts(eligible, 2, share, seeded(seed)) for seed in range(50)]
    assert {int(m.sum()) for m in masks} == {6}
    assert torch.equal(random_rollouts(eligible, 2, share, seeded(7)), masks[7])
    assert ({tuple(m.sum(1).tolist()) for m in masks} == {(2, 2, 2)}) is (share == 0)
    shares, tolerance = frequencies(lambda g: random_rollouts(eligible, 2, share, g))
    assert (shares - 0.5).abs().max() < tolerance


# --- tokens -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 3)), max_size=40), st.integers(1, 100), st.booleans())
def test_tokens_match_sorting(rows, percent, of_batch):
    priorities, ids = [row[0] for row in rows], sorted(row[1] for row in rows)
    values = torch.tensor(priorities, dtype=torch.float64)
    chosen = top_tokens(values, percent / 100, None if of_batch else torch.tensor(ids, dtype=torch.long)).tolist()
    assert len(chosen) == len(ids)
    for sequence in {0} if of_batch and ids else set(ids):
        own = [i for i in range(len(ids)) if of_batch or ids[i] == sequence]
        count = max(1, -(-percent * len(own) // 100))
        lowest = sorted((priorities[i] for i in own), reverse=True)[count - 1]
        selected = [i for i in own if chosen[i]]
        assert len(selected) == count and all(priorities[i] >= lowest for i in selected)


@pytest.mark.parametrize(
    ("count", "fraction", "kept"),
    [(100, 0.07, 7), (100, 0.29, 29), (3, 1 / 3, 1), (10, 0.05, 1), (1000, 0.0011, 2), (7, 1.0, 7), (5, 1e-12, 1)],
)
def test_token_fraction_is_rounded_up_exactly(count, fraction, kept):
    assert int(top_tokens(torch.rand(count, generator=seeded(0)), fraction).sum()) == kept


@pytest.mark.parametrize("ids", [None, torch.arange(3).repeat_interleave(4)])
def test_token_ties_are_broken_uniformly(ids):
    """Values above the tie are always selected."""
    priorities = torch.tensor([2.0, 1, 1, 0, 2, 1, 1, 0, 2, 1, 1, 0])
    shares, tolerance = frequencies(lambda g: top_tokens(priorities, 0.5, ids, g))
    assert (shares - torch.tensor([1, 0.5, 0.5, 0] * 3)).abs().max() < tolerance


@pytest.mark.parametrize(("value", "fraction"), [(0, 0.0), (0, 1.01), (0, math.nan), (math.nan, 0.5), (-math.inf, 0.5)])
def test_priorities_must_be_finite_and_fractions_in_range(value, fraction):
    with pytest.raises(ValueError, match="need finite priorities and a fraction in"):
        top_tokens(torch.tensor([1.0, value, 2.0]), fraction)
