"""Selections of other methods against sorting, all subsets and all selections, and frequencies over seeds."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d3s.loss import Clip, denominators
from d3s.selector import groups_of_variance_mass, keep_probabilities, largest_rollouts, random_tokens
from tests.helpers.losses import compute_loss
from tests.helpers.subsets import frequencies, seeded, value_tables

# --- rollouts ---------------------------------------------------------------------------------------------------------


@given(value_tables(3, 6), st.data(), st.booleans())
def test_largest_rollouts_match_sorting(table, data, cross):
    keep = data.draw(st.integers(1, len(table[0])))
    eligible = [[data.draw(st.booleans()) for _ in row] for row in table]
    advantages = torch.tensor(table, dtype=torch.float64)
    chosen = largest_rollouts(advantages, keep, cross, seeded(0), torch.tensor(eligible)).tolist()
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
    shares, tolerance = frequencies(lambda g: largest_rollouts(advantages, 2, cross, g))
    expected = torch.tensor([[1, 1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3, 1]])
    assert (shares - expected).abs().max() < tolerance


# --- groups -----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("share", [0.0, 1.1, math.nan])
def test_invalid_variance_mass_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        groups_of_variance_mass(torch.ones(2), share)


# --- tokens kept at random --------------------------------------------------------------------------------------------

LENGTHS = [3, 1, 2]
IDS = torch.arange(3).repeat_interleave(torch.tensor(LENGTHS))


def possible_selections(prefix, fraction):
    """All selections of the tokens of LENGTHS with their probabilities, from keep_probabilities."""
    kept = keep_probabilities(fraction, IDS, prefix).tolist()
    if not prefix:
        for mask in itertools.product([False, True], repeat=len(kept)):
            yield list(mask), math.prod(p if m else 1 - p for p, m in zip(kept, mask))
        return
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    for cuts in itertools.product(*(range(1, n + 1) for n in LENGTHS)):
        probability = 1.0
        for start, length, cut in zip(starts, LENGTHS, cuts):
            probability *= kept[start + cut - 1] - (kept[start + cut] if cut < length else 0.0)
        yield [t < cut for length, cut in zip(LENGTHS, cuts) for t in range(length)], probability


@pytest.mark.parametrize("normalizer", ["selected", "all", "sequence", "constant"])
@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("prefix", [False, True])
def test_weighted_random_tokens_are_unbiased(prefix, fraction, normalizer):
    """The expected gradient over all selections is that of all tokens, of a loss that clips, for every normalizer."""
    parameters = torch.randn(len(IDS), generator=seeded(0), dtype=torch.float64, requires_grad=True)
    old, advantages = torch.randn(2, len(IDS), generator=seeded(1), dtype=torch.float64)
    every = torch.ones(len(IDS), dtype=torch.bool)
    divisors = denominators(normalizer, IDS.bincount(), IDS.bincount(), 4)[IDS]

    def gradient(selected, weights):
        chosen = torch.tensor(selected)
        terms = [values[chosen] for values in (parameters, old, advantages * weights)]
        loss, _ = compute_loss("grpo", *terms, None, Clip(0.2), divisors[chosen])
        return torch.autograd.grad(loss, parameters)[0]

    weights = 1 / keep_probabilities(fraction, IDS, prefix)
    total, expected = 0.0, torch.zeros(len(IDS), dtype=torch.float64)
    for selected, probability in possible_selections(prefix, fraction):
        total += probability
        expected += probability * gradient(selected, weights)
    assert total == pytest.approx(1)
    torch.testing.assert_close(expected, gradient(every.tolist(), 1.0))


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("prefix", [False, True])
def test_random_tokens_follow_their_probabilities(prefix, fraction):
    shares, tolerance = frequencies(lambda g: random_tokens(fraction, IDS, prefix, g))
    assert (shares - keep_probabilities(fraction, IDS, prefix)).abs().max() < tolerance
    seen = {tuple(random_tokens(fraction, IDS, prefix, seeded(seed)).tolist()) for seed in range(500)}
    possible = {tuple(mask) for mask, probability in possible_selections(prefix, fraction) if probability > 0}
    assert seen <= possible and len(seen) >= 4


@pytest.mark.parametrize("fraction", [0.05, 0.25, 0.5, 0.9])
def test_prefixes_keep_the_fraction_on_average(fraction):
    for length in (1, 2, 10, 1000):
        kept = keep_probabilities(fraction, torch.zeros(length, dtype=torch.long), prefix=True)
        assert fraction - 1e-12 <= kept.mean() <= fraction + 1 / length
        assert (kept > 0).all() and (kept.diff() <= 0).all() and kept[0] == 1
    half = keep_probabilities(0.5, torch.zeros(4, dtype=torch.long), prefix=True)
    assert half.tolist() == [1, 0.75, 0.5, 0.25]


def test_random_tokens_at_the_limits():
    none = torch.zeros(0, dtype=torch.long)
    for prefix in (False, True):
        assert random_tokens(1.0, IDS, prefix).all() and (keep_probabilities(1.0, IDS, prefix) == 1).all()
        assert random_tokens(0.5, none, prefix).shape == (0,)
        with pytest.raises(ValueError, match="fraction"):
            random_tokens(0.0, IDS, prefix)
