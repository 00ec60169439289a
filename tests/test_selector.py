"""Both levels of selection against brute force, sorting, and frequencies over seeds."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from d3s.selector import mixed_rollouts, random_rollouts, select_rollouts, select_tokens, top_tokens
from tests.helpers.subsets import best_variance, frequencies, seeded, value_tables, variance

# --- rollouts ---------------------------------------------------------------------------------------------------------


@given(value_tables(3, 8), st.data())
def test_within_group_selection_is_optimal(table, data):
    keep = data.draw(st.integers(1, len(table[0])))
    chosen = select_rollouts(torch.tensor(table, dtype=torch.float64), keep, cross_group=False)
    assert chosen.dtype == torch.bool and chosen.sum(1).tolist() == [keep] * len(table)
    for row, mask in zip(table, chosen.tolist()):
        got = variance(list(itertools.compress(row, mask)))
        assert got == pytest.approx(best_variance(row, keep), rel=1e-7, abs=1e-30)


@given(value_tables(3, 4), st.data())
def test_cross_group_selection_is_optimal(table, data):
    keep = data.draw(st.integers(1, len(table[0])))
    chosen = select_rollouts(torch.tensor(table, dtype=torch.float64), keep)
    pool = list(itertools.chain(*table))
    assert int(chosen.sum()) == keep * len(table)
    got = variance(list(itertools.compress(pool, chosen.flatten().tolist())))
    assert got == pytest.approx(best_variance(pool, keep * len(table)), rel=1e-7, abs=1e-30)


@given(value_tables(3, 6), st.data())
def test_selection_is_optimal_among_the_eligible(table, data):
    """Within and across groups, and where fewer than `keep` are eligible; against every subset of that size."""
    keep = data.draw(st.integers(1, len(table[0])))
    mask = [[data.draw(st.booleans()) for _ in row] for row in table]
    advantages, eligible = torch.tensor(table, dtype=torch.float64), torch.tensor(mask)
    within = select_rollouts(advantages, keep, cross_group=False, eligible=eligible)
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


@given(value_tables(3, 6), st.data(), st.floats(0, 1), st.booleans())
def test_every_selector_fills_its_budget(table, data, cross_share, cross):
    keep = data.draw(st.integers(1, len(table[0])))
    advantages = torch.tensor(table, dtype=torch.float64)
    eligible = torch.tensor([[data.draw(st.booleans()) for _ in row] for row in table])
    total = min(keep * len(table), int(eligible.sum()))
    per_group = eligible.sum(1).clamp(max=keep).tolist()
    mixed = mixed_rollouts(advantages, keep, cross_share, seeded(0), eligible)
    drawn = random_rollouts(advantages, keep, cross, seeded(0), eligible)
    assert not (mixed & ~eligible).any() and not (drawn & ~eligible).any()
    assert mixed.sum(1).tolist() == per_group if cross_share == 0 else int(mixed.sum()) == total
    assert int(drawn.sum()) == total if cross else drawn.sum(1).tolist() == per_group


@given(value_tables(1, 16), st.data())
def test_even_selections_keep_population_variance(table, data):
    """Lemma 1 of D3S for population variances, where it holds for every even N."""
    row = torch.tensor(table, dtype=torch.float64)
    assume(variance(table[0]) > 1e-15)
    row = (row - row.mean()) / row.std(correction=0)
    keep = 2 * data.draw(st.integers(1, row.shape[1] // 2))
    chosen = select_rollouts(row, keep)
    assert variance(row[chosen].tolist()) >= 1 - 1e-9


@given(value_tables(1, 12), st.data())
def test_any_selection_keeps_sample_variance(table, data):
    """Lemma 1 of D3S for sample variances; it holds for every N >= 2."""
    row = torch.tensor(table, dtype=torch.float64)
    assume(variance(table[0]) > 1e-15)
    row = (row - row.mean()) / row.std()
    chosen = select_rollouts(row, data.draw(st.integers(2, row.shape[1])))
    assert row[chosen].var() >= 1 - 1e-9


def test_odd_selections_are_unbalanced():
    """Three of two and two rollouts have population variance 8/9 and mean 1/3 or -1/3: the schedule keeps N even."""
    row = torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    for seed in range(5):
        chosen = row[select_rollouts(row, 3, generator=seeded(seed))]
        assert variance(chosen.tolist()) == pytest.approx(8 / 9) and abs(chosen.sum()) == 1


@pytest.mark.parametrize(
    ("table", "keep", "cross", "expected"),
    [
        ([[0.0] * 6], 2, False, [[1 / 3] * 6]),
        ([[0.0] * 4, [0.0] * 4], 2, True, [[0.5] * 4] * 2),
        # two ones and two zeros are kept, each with equal frequency among its ties
        ([[1.0, 0, 1, 0, 1, 0, 0, 0]], 4, False, [[2 / 3, 2 / 5, 2 / 3, 2 / 5, 2 / 3, 2 / 5, 2 / 5, 2 / 5]]),
        ([[1.0, 0, 0], [0.0, 1, 1]], 2, True, [[2 / 3] * 3] * 2),
        # odd N: two ones and one zero, or one and two, are equally good
        ([[1.0, 0, 1, 0]], 3, False, [[3 / 4] * 4]),
        ([[-1.0, 0, 1, 0]], 2, False, [[1, 0, 1, 0]]),
        # one 0.9 with two 0.1 is as good as two with one, although 0.1 and 0.9 are rounded
        ([[0.9, 0.1, 0.9] + [0.1] * 4], 3, False, [[3 / 4, 3 / 10, 3 / 4] + [3 / 10] * 4]),
    ],
)
def test_rollout_ties_are_broken_uniformly(table, keep, cross, expected):
    shares, tolerance = frequencies(lambda g: select_rollouts(torch.tensor(table), keep, cross, g))
    assert (shares - torch.tensor(expected, dtype=torch.float64)).abs().max() < tolerance


def test_ties_are_uniform_over_optimal_subsets():
    """Against all subsets: equally good multisets of values are drawn equally often, and so are the sets of each."""
    draws = 2_000
    for size in range(3, 7):
        for values in itertools.combinations_with_replacement((0.0, 1.0, 2.0), size):
            for keep in range(2, size):
                subsets = list(itertools.combinations(range(size), keep))
                kinds = {subset: tuple(values[i] for i in subset) for subset in subsets}
                best = best_variance(values, keep)
                optimal = [subset for subset in subsets if math.isclose(variance(kinds[subset]), best, abs_tol=1e-12)]
                of_kind = Counter(kinds[subset] for subset in optimal)
                chosen = select_rollouts(torch.tensor([values] * draws), keep, False, seeded(size * keep))
                drawn = Counter(tuple(row.nonzero()[:, 0].tolist()) for row in chosen)
                assert drawn.keys() <= set(optimal)
                for subset in optimal:
                    share = 1 / len(of_kind) / of_kind[kinds[subset]]
                    tolerance = 5 * math.sqrt(share * (1 - share) / draws) + 1e-12
                    assert abs(drawn[subset] / draws - share) < tolerance, (values, keep, subset)


def test_rollout_ties_follow_the_seed():
    advantages = torch.zeros(4, 16)
    for select in (select_rollouts, random_rollouts):
        masks = [select(advantages, 4, generator=seeded(seed)) for seed in (1, 1, 2)]
        assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])


def test_cross_group_selection_does_not_normalize():
    """After another normalization both groups would be equally good."""
    advantages = torch.tensor([[-0.1, 0.1, -0.1, 0.1], [-3.0, 3.0, -3.0, 3.0]])
    assert select_rollouts(advantages, 2).tolist() == [[False] * 4, [True] * 4]
    before = advantages.clone()
    select_rollouts(advantages, 2)
    assert torch.equal(advantages, before)


@pytest.mark.parametrize(
    ("advantages", "keep", "message"),
    [
        (torch.zeros(4), 2, "must be"),
        (torch.zeros(2, 4), 0, "between 1 and G = 4"),
        (torch.zeros(2, 4), 5, "between 1 and G = 4"),
        (torch.tensor([[0.0, math.nan]]), 1, "finite"),
        (torch.tensor([[0.0, -math.inf]]), 1, "finite"),
    ],
)
def test_invalid_rollout_selections_are_refused(advantages, keep, message):
    with pytest.raises(ValueError, match=message):
        select_rollouts(advantages, keep)


@given(value_tables(4, 8), st.data(), st.floats(0, 1), st.integers(0, 2**31))
def test_mixed_selection_ends_match_select_rollouts(table, data, cross_share, seed):
    advantages, keep = torch.tensor(table, dtype=torch.float64), data.draw(st.integers(1, len(table[0])))
    chosen = mixed_rollouts(advantages, keep, cross_share, seeded(seed))
    assert int(chosen.sum()) == keep * len(table)
    assert int(chosen.sum(1).min()) >= 2 * math.floor((1 - cross_share) * keep / 2)
    for share, cross in ((0.0, False), (1.0, True)):
        end = select_rollouts(advantages, keep, cross_group=cross, generator=seeded(seed))
        assert torch.equal(mixed_rollouts(advantages, keep, share, seeded(seed)), end)


def test_mixed_selection_keeps_a_share_of_each_group():
    """Nothing of the first group would be kept across the batch."""
    advantages = torch.tensor([[-0.1, 0.1, -0.1, 0.1], [-3.0, 3.0, -3.0, 3.0]])
    counts = {share: mixed_rollouts(advantages, 4, share, seeded(0)).sum(1).tolist() for share in (0, 0.5, 1)}
    assert counts == {0: [4, 4], 0.5: [4, 4], 1: [4, 4]}
    wide = advantages.repeat(1, 5)  # (1 - 0.8) * 10 is a little less than 2
    counts = {share: mixed_rollouts(wide, 10, share, seeded(0)).sum(1).tolist() for share in (0, 0.6, 0.8, 0.95, 1)}
    assert counts == {0: [10, 10], 0.6: [4, 16], 0.8: [2, 18], 0.95: [0, 20], 1: [0, 20]}


@pytest.mark.parametrize(
    ("share", "keep", "few", "groups_with_more"),
    [(0.5, 10, 4, 2), (0.9, 10, 0, 2), (0.25, 2, 0, 3), (0.75, 2, 0, 1), (0.75, 4, 0, 2), (0.5, 4, 2, 0)],
)  # fmt: skip
def test_part_of_a_pair_goes_to_random_groups(share, keep, few, groups_with_more):
    """The last group alone would fill the batch: the others keep only what they reserve."""
    advantages = torch.tensor([[-1.0, 1.0] * 30] * 3 + [[-9.0, 9.0] * 30])
    frequency = torch.zeros(3)
    for seed in range(100):
        counts = mixed_rollouts(advantages, keep, share, seeded(seed))[:3].sum(1)
        assert {few, few + 2} >= set(counts.tolist())
        assert groups_with_more - 1 <= int((counts > few).sum()) <= groups_with_more
        frequency += (counts > few) / 100
    assert (frequency - groups_with_more / 4).abs().max() < 0.2


def test_mixed_selection_reserves_pairs():
    """A single value has variance 0, so it would be random; a pair holds the extremes of its group."""
    advantages = torch.tensor([[-1.0, 0, 0, 0, 0, 0, 0, 1.0]] * 2 + [[-9.0, 9] * 4] * 2)
    for seed in range(20):
        chosen = mixed_rollouts(advantages, 4, 0.5, seeded(seed))
        assert chosen[:2].tolist() == [[True, *[False] * 6, True]] * 2 and int(chosen.sum()) == 16


@pytest.mark.parametrize("cross", [True, False])
def test_random_rollouts_are_uniform(cross):
    advantages = torch.arange(12.0).view(3, 4)
    masks = [random_rollouts(advantages, 2, cross, seeded(seed)) for seed in range(50)]
    assert {int(m.sum()) for m in masks} == {6}
    assert ({tuple(m.sum(1).tolist()) for m in masks} == {(2, 2, 2)}) is (not cross)
    shares, tolerance = frequencies(lambda g: random_rollouts(advantages, 2, cross, g))
    assert (shares - 0.5).abs().max() < tolerance


# --- tokens -----------------------------------------------------------------------------------------------------------

tokens = st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 5), st.integers(0, 3)), max_size=40)


def ceiling(percent, count):
    return max(1, -(-percent * count // 100))


def lowest_selected(priorities, percent):
    """The lowest priority that is selected, by sorting."""
    return sorted(priorities, reverse=True)[ceiling(percent, len(priorities)) - 1] if priorities else None


@given(tokens, st.integers(1, 100))
def test_batch_tokens_match_sorting(rows, percent):
    a, h = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in (0, 1))
    chosen = select_tokens(a, h, percent / 100)
    priorities = [abs(row[0]) * row[1] for row in rows]
    assert int(chosen.sum()) == (ceiling(percent, len(rows)) if rows else 0)
    assert all(priorities[i] >= lowest_selected(priorities, percent) for i in chosen.nonzero()[:, 0].tolist())


@given(tokens, st.integers(1, 100))
def test_sequence_tokens_match_sorting(rows, percent):
    a, h = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in (0, 1))
    ids = torch.tensor([row[2] for row in rows], dtype=torch.long)  # in any order
    chosen = select_tokens(a, h, percent / 100, ids).tolist()
    for sequence in {row[2] for row in rows}:
        own = [i for i, row in enumerate(rows) if row[2] == sequence]
        priorities = {i: abs(rows[i][0]) * rows[i][1] for i in own}
        selected = [i for i in own if chosen[i]]
        assert len(selected) == ceiling(percent, len(own))
        assert all(priorities[i] >= lowest_selected(list(priorities.values()), percent) for i in selected)


@given(st.lists(st.sampled_from([-0.0, 0.0, 1e-30, 0.5, 2.0]), min_size=1, max_size=40), st.integers(1, 100))
def test_tied_tokens_match_the_kth_value(values, percent):
    """The same tokens as torch's order statistic and a shuffle of the ties give, with the same random numbers."""
    priorities, count = torch.tensor(values), ceiling(percent, len(values))
    threshold = priorities.kthvalue(len(values) - count + 1).values
    above, tied = priorities > threshold, (priorities == threshold).nonzero()[:, 0]
    drawn = tied[torch.randperm(len(tied), generator=seeded(3))[: count - int(above.sum())]]
    expected = above.index_fill(0, drawn, True)
    assert torch.equal(top_tokens(priorities, percent / 100, generator=seeded(3)), expected)


def test_tokens_rank_by_advantage_times_entropy():
    advantages, entropies = torch.tensor([-2.0, 1.0, 0.1, 0.0]), torch.tensor([0.6, 1.0, 9.0, 99.0])
    assert select_tokens(advantages, entropies, 0.25).tolist() == [True, False, False, False]
    assert select_tokens(advantages, entropies, 0.5).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("count", "fraction", "kept"),
    [(100, 0.07, 7), (100, 0.29, 29), (3, 1 / 3, 1), (10, 0.05, 1), (1000, 0.0011, 2), (7, 1.0, 7), (5, 1e-12, 1)],
)
def test_token_fraction_is_rounded_up_exactly(count, fraction, kept):
    values = torch.rand(count, generator=seeded(0))
    assert int(select_tokens(values, values, fraction).sum()) == kept
    ids = torch.zeros(count, dtype=torch.long)
    assert int(select_tokens(values, values, fraction, ids).sum()) == kept


@pytest.mark.parametrize("ids", [None, torch.zeros(12).long(), torch.arange(3).repeat_interleave(4)])
def test_token_ties_are_broken_uniformly(ids):
    ones = torch.ones(12)
    shares, tolerance = frequencies(lambda g: select_tokens(ones, ones, 0.25, ids, g))
    assert (shares - 0.25).abs().max() < tolerance
    advantages = torch.tensor([2.0, 1, 1, 0, 2, 1, 1, 0, 2, 1, 1, 0])  # values above the tie are always selected
    shares, tolerance = frequencies(lambda g: select_tokens(advantages, ones, 0.5, ids, g))
    assert (shares - torch.tensor([1, 0.5, 0.5, 0] * 3)).abs().max() < tolerance
    repeated = [select_tokens(advantages, ones, 0.5, ids, seeded(3)) for _ in range(2)]
    assert torch.equal(*repeated)


def test_no_tokens_give_an_empty_selection():
    none = torch.zeros(0)
    assert select_tokens(none, none, 0.5).shape == (0,)
    assert select_tokens(none, none, 0.5, none.long()).shape == (0,)


@pytest.mark.parametrize(
    ("advantages", "entropies", "fraction", "ids", "message"),
    [
        (torch.zeros(3), torch.zeros(3), 0.0, None, "fraction"),
        (torch.zeros(3), torch.zeros(3), 1.01, None, "fraction"),
        (torch.zeros(3), torch.zeros(3), math.nan, None, "fraction"),
        (torch.zeros(3), torch.zeros(2), 0.5, None, "one entropy per advantage"),
        (torch.zeros(3), torch.zeros(3), 0.5, torch.zeros(2).long(), "sequence id per token"),
        (torch.zeros(1, 3), torch.zeros(1, 3), 0.5, None, "one priority"),
        (torch.ones(3), torch.tensor([1.0, math.nan, 2.0]), 0.5, None, "finite"),
        (torch.ones(3), torch.tensor([1.0, 0.0, math.inf]), 0.5, None, "finite"),
    ],
)
def test_invalid_token_selections_are_refused(advantages, entropies, fraction, ids, message):
    with pytest.raises(ValueError, match=message):
        select_tokens(advantages, entropies, fraction, ids)
